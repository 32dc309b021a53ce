# SPDX-License-Identifier: Apache-2.0
"""Host keys and logins, held against the ssh program: both get in, or neither does."""

import base64
import contextlib
import os
import re
import shutil
import socket
import struct
import subprocess
import threading

import pytest

import jobs

PORT = 2240


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def keygen(path, *options):
    run("ssh-keygen", "-q", "-t", "ed25519", "-f", path, *(options or ("-N", "")))
    return str(path)


def public(path):
    with open(f"{path}.pub") as file:
        return " ".join(file.read().split()[:2])


@pytest.fixture
def both(probe, two):
    """both("node1", config): what came of it by horarun's transport, if the ssh program agrees."""

    def go(host, config, *flags, environment=None):
        environment = environment or {"SSH_AUTH_SOCK": ""}
        line = ["ssh", "-o", "BatchMode=yes", "-F", config, host, "true"]
        ssh = subprocess.run(line, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
        outcome = probe(host, "--config", config, *flags, environment=environment)
        in_by_us = outcome.results[host]["result"] == "hello"
        assert in_by_us == (ssh.returncode == 0), f"ssh: {ssh.returncode} {ssh.stderr}\n{outcome}"
        return outcome

    return go


# --- host keys -------------------------------------------------------------------------------------
@pytest.fixture
def host_key(two, keys):
    with open(keys.known_hosts) as file:
        return next(line.split(" ", 1)[1].strip() for line in file if line.startswith("node1,"))


@pytest.mark.parametrize("checking", ["yes", "accept-new"])
@pytest.mark.parametrize(
    "lines, port, more",
    [
        (["node1 KEY"], 22, []),
        (["node1 KEY"], PORT, []),
        (["node1 OTHER"], PORT, []),
        (["[node1]:PORT KEY"], PORT, []),
        (["[node1]:PORT OTHER", "node1 KEY"], PORT, []),
        (["[node1]:PORT KEY"], 22, []),
        (["*,![node1]:PORT OTHER"], PORT, []),
        (["*,!node1 KEY"], 22, []),
        (["!node1,* KEY", "n?de* KEY"], 22, []),
        (["NODE1 KEY"], 22, []),
        (["node1 OTHER", "node1 KEY"], 22, []),
        (["node1 RSA"], 22, []),
        (["node1 OTHER"], 22, []),
        (["alias KEY"], PORT, ["HostKeyAlias alias"]),
        (["Alias KEY"], PORT, ["HostKeyAlias ALIAS"]),
        (["[alias]:PORT KEY"], PORT, ["HostKeyAlias alias"]),
        (["node1 KEY", "[node1]:PORT KEY"], PORT, ["HostKeyAlias alias"]),
        (["node1 ssh-unknown AAAAC3NzaC11bmtub3du"], 22, []),
        (["nonsense", "", "# node1 KEY", "@what node1 KEY", "\tnode1 \t KEY words"], 22, []),
    ],
)
def test_known_hosts(both, sshd, config, host_key, tmp_path, lines, port, more, checking):
    if port != 22:
        sshd(port)
    other, rsa = keygen(tmp_path / "other"), keygen(tmp_path / "rsa", "-t", "rsa", "-N", "")
    text = "\n".join(lines) + "\n"
    for name, value in {"KEY": host_key, "OTHER": public(other), "RSA": public(rsa), "PORT": str(port)}.items():
        text = text.replace(name, value)
    known = tmp_path / "known_hosts"
    known.write_text(text)
    path = config(
        f"Port {port}", f"StrictHostKeyChecking {checking}", f"UserKnownHostsFile {known}", *more, known=False
    )
    both("node1", path)


@pytest.mark.parametrize("hashed", [False, True])
def test_several_files(both, config, host_key, tmp_path, hashed):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    first.write_text(f"node1 {public(keygen(tmp_path / 'other'))}\n")
    second.write_text("")
    third.write_text(f"node1 {host_key}\n")
    if hashed:
        for file in (first, third):
            run("ssh-keygen", "-q", "-H", "-f", file)
    path = config(f"UserKnownHostsFile {first} {second}", f"GlobalKnownHostsFile {third}", known=False)
    both("node1", path).hello()


@pytest.mark.parametrize("line", ["@revoked node1 KEY", "@revoked * KEY", "@revoked node2 KEY"])
def test_revoked(both, config, host_key, tmp_path, line):
    known = tmp_path / "known_hosts"
    known.write_text(f"node1 {host_key}\n{line.replace('KEY', host_key)}\n")
    outcome = both("node1", config(f"UserKnownHostsFile {known}", known=False))
    if "node2" not in line:
        assert "revoked" in outcome.failure("E_HOST_KEY_CHANGED")


@pytest.mark.parametrize("checking", ["yes", "accept-new", "no"])
def test_a_revoked_key_is_never_accepted(probe, two, sshd, config, host_key, tmp_path, checking):
    known = tmp_path / "known_hosts"
    known.write_text(f"@revoked node1 {host_key}\n")
    for port in (22, PORT):
        if port != 22:
            sshd(port)
        path = config(f"Port {port}", f"StrictHostKeyChecking {checking}", f"UserKnownHostsFile {known}", known=False)
        assert "revoked" in probe("node1", "--config", path).failure("E_HOST_KEY_CHANGED")


@pytest.mark.parametrize("hashed", ["yes", "no"])
@pytest.mark.parametrize("more, name", [([], f"[node1]:{PORT}"), (["HostKeyAlias alias"], "alias")])
def test_a_key_is_added_as_ssh_adds_it(probe, two, sshd, config, tmp_path, hashed, more, name):
    sshd(PORT)
    known = tmp_path / "known_hosts"
    lines = [f"Port {PORT}", f"HashKnownHosts {hashed}", f"UserKnownHostsFile {known}", *more]
    probe("node1", "--config", config("StrictHostKeyChecking accept-new", *lines, known=False)).hello()
    assert known.read_text().startswith("|1|" if hashed == "yes" else name)
    assert "found: line 1" in run("ssh-keygen", "-F", name, "-f", known)
    strict = config("StrictHostKeyChecking yes", *lines, known=False)
    run("ssh", "-o", "BatchMode=yes", "-F", strict, "node1", "true")
    before = known.read_text()
    probe("node1", "--config", strict).hello()
    probe("node1", "--accept-new", "--config", strict).hello()
    assert known.read_text() == before


def test_a_key_that_cannot_be_kept_is_a_warning(both, config, tmp_path):
    known = tmp_path / "folder"
    known.mkdir()
    outcome = both("node1", config("StrictHostKeyChecking no", f"UserKnownHostsFile {known}", known=False))
    assert "cannot be saved" in outcome.errors


def test_a_changed_key_that_is_not_checked_is_a_warning(both, config, tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text(f"node1 {public(keygen(tmp_path / 'other'))}\n")
    outcome = both("node1", config("StrictHostKeyChecking no", f"UserKnownHostsFile {known}", known=False))
    outcome.hello()
    assert str(known) in outcome.errors


@pytest.fixture
def authority(two, sshd, tmp_path):
    """An sshd whose host key has a certificate: the authority's public key."""
    ca = keygen(tmp_path / "ca")
    key = keygen(tmp_path / "host")
    run("ssh-keygen", "-q", "-s", ca, "-I", "host", "-h", "-n", "node1", f"{key}.pub")
    for source, target in ((key, "/run/certified"), (f"{key}-cert.pub", "/run/certified-cert.pub")):
        with open(source) as file:
            two.execute(1, "sh", "-c", f"umask 77; cat >{target}", input=file.read())
    sshd(PORT, HostKey="/run/certified", HostCertificate="/run/certified-cert.pub")
    return public(ca)


@pytest.mark.parametrize("hosts_field, gets_in", [("node1", True), (f"[node*]:{PORT}", True), ("node2", False)])
def test_a_certificate_of_the_host(both, authority, config, tmp_path, hosts_field, gets_in):
    known = tmp_path / "known_hosts"
    known.write_text(f"@cert-authority {hosts_field} {authority}\n")
    outcome = both("node1", config(f"Port {PORT}", f"UserKnownHostsFile {known}", known=False))
    if gets_in:
        outcome.hello()
        assert "@cert-authority" in outcome.errors


# --- keys ------------------------------------------------------------------------------------------
@pytest.fixture
def wrong_keys(tmp_path):
    """Five keys that no server knows."""
    return [keygen(tmp_path / f"wrong{i}") for i in range(5)]


@pytest.mark.parametrize("kind", ["passphrase", "public half", "public file"])
def test_named_keys_of_the_agent(both, sshd, config, keys, agent, wrong_keys, tmp_path, kind):
    """The server takes one try: no other key may be shown."""
    sshd(PORT, MaxAuthTries=1)
    environment = agent(*wrong_keys, keys.key)
    mine = str(tmp_path / "mine")
    if kind == "passphrase":
        run("cp", "-p", keys.key, mine)
        run("ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", mine)
    else:
        run("cp", f"{keys.key}.pub", f"{mine}.pub")
    named = f"{mine}.pub" if kind == "public file" else mine
    lines = [f"Port {PORT}", f"IdentityFile {named}", "IdentitiesOnly yes", "StrictHostKeyChecking no"]
    both("node1", config(*lines, identity=False), environment=environment).hello()


def test_other_keys_of_the_agent_are_left_out(both, config, keys, agent, wrong_keys):
    environment = agent(keys.key)
    lines = [f"IdentityFile {wrong_keys[0]}", "IdentitiesOnly yes"]
    message = both("node1", config(*lines, identity=False), environment=environment).failure("E_SSH_AUTH")
    assert wrong_keys[0] in message


def test_the_agent_has_the_first_word(both, sshd, config, keys, agent, wrong_keys):
    sshd(PORT, MaxAuthTries=1)
    lines = [f"Port {PORT}", *(f"IdentityFile {key}" for key in wrong_keys), "StrictHostKeyChecking no"]
    both("node1", config(*lines, identity=False), environment=agent(keys.key)).hello()


class WithForeignKeys(threading.Thread):
    """A double of a newer ssh-agent: before the keys of a real one it lists some of a type that no ssh
    of this machine knows."""

    def __init__(self, path, real, count=1):
        super().__init__(daemon=True)
        self.real, self.count = real, count
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(20)

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                link = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def serve(self, link):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as real:
            real.connect(self.real)
            while len(head := link.recv(4, socket.MSG_WAITALL)) == 4:
                request = link.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)
                real.sendall(head + request)
                answer = real.recv(struct.unpack(">I", real.recv(4, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)
                if request[0] == 11:
                    text = lambda value: struct.pack(">I", len(value)) + value  # noqa: E731
                    foreign = text(text(b"ssh-foreign") + text(b"x" * 32)) + text(b"a key of tomorrow")
                    count = struct.unpack(">I", answer[1:5])[0] + self.count
                    answer = answer[:1] + struct.pack(">I", count) + foreign * self.count + answer[5:]
                link.sendall(struct.pack(">I", len(answer)) + answer)


def test_keys_that_follow_one_of_an_unknown_type(both, config, keys, agent, tmp_path):
    path = str(tmp_path / "newer")
    double = WithForeignKeys(path, agent(keys.key)["SSH_AUTH_SOCK"])
    double.start()
    environment = {"SSH_AUTH_SOCK": path}
    both("node1", config(identity=False), environment=environment).hello()
    double.listener.close()


def test_a_key_that_others_may_read(both, config, keys, tmp_path):
    mine = str(tmp_path / "mine")
    run("install", "-m", "644", keys.key, mine)
    message = both("node1", config(f"IdentityFile {mine}", "IdentitiesOnly yes", identity=False)).failure("E_SSH_AUTH")
    assert "chmod 600" in message


def test_a_server_that_ends_the_login(both, sshd, config, wrong_keys):
    sshd(PORT, MaxAuthTries=3)
    lines = [f"Port {PORT}", *(f"IdentityFile {key}" for key in wrong_keys), "IdentitiesOnly yes"]
    path = config(*lines, "StrictHostKeyChecking no", identity=False)
    message = both("node1", path).failure("E_SSH_AUTH")
    assert "ended the login: 'Too many authentication failures'" in message and "MaxAuthTries" in message
    assert wrong_keys[2] in message and wrong_keys[3] not in message


def test_a_server_with_new_algorithms_alone(both, sshd, config):
    """The key exchange of OpenSSH 9.0 that libssh does not have."""
    sshd(PORT, KexAlgorithms="sntrup761x25519-sha512@openssh.com")
    outcome = both("node1", config(f"Port {PORT}", "StrictHostKeyChecking no"))
    outcome.hello()
    assert "the ssh program" in outcome.errors


def test_keys_of_the_agent_that_no_server_knows(both, config, agent, wrong_keys):
    outcome = both("node1", config("StrictHostKeyChecking no", identity=False), environment=agent(*wrong_keys[:2]))
    assert "of ssh-agent" in outcome.failure("E_SSH_AUTH")


def test_keys_are_shown_once(probe, two, sshd, config, wrong_keys, agent):
    """It is in a file and in the agent, and has two names: sshd would count each showing."""
    sshd(PORT)
    lines = [f"Port {PORT}", f"IdentityFile {wrong_keys[0]}", f"IdentityFile {wrong_keys[0]}.pub"]
    path = config(*lines, "StrictHostKeyChecking no", identity=False)
    message = probe("node1", "--config", path, environment=agent(wrong_keys[0])).failure("E_SSH_AUTH")
    assert message.count(wrong_keys[0]) == 1, message


# --- the advice works when it is typed -------------------------------------------------------------
def commands_in(message):
    """What stands in brackets."""
    return re.findall(r"\((ssh-key[^()]*)\)", message)


@pytest.mark.parametrize("port, more", [(22, []), (PORT, []), (PORT, ["HostKeyAlias my-alias"])])
def test_how_to_add_a_key(both, sshd, config, tmp_path, port, more):
    if port != 22:
        sshd(port)
    known = tmp_path / "folder" / "known_hosts"
    known.parent.mkdir()
    path = config(f"Port {port}", f"UserKnownHostsFile {known}", *more, known=False)
    add = commands_in(both("node1", path).failure("E_HOST_KEY_UNKNOWN"))
    run("sh", "-c", add[0])
    both("node1", path).hello()


@pytest.mark.parametrize("hosts_field", [f"[node1]:{PORT}", f"[node1]:{PORT},other", f"[node*]:{PORT}"])
def test_how_to_remove_a_key(both, sshd, config, tmp_path, hosts_field):
    sshd(PORT)
    known = tmp_path / "known_hosts"
    known.write_text(f"# first\n{hosts_field} {public(keygen(tmp_path / 'other'))}\n")
    path = config(f"Port {PORT}", f"UserKnownHostsFile {known}", known=False)
    message = both("node1", path).failure("E_HOST_KEY_CHANGED")
    assert f"line 2 of {known}" in message
    remove = commands_in(message)
    if hosts_field == f"[node1]:{PORT}":
        run("sh", "-c", remove[0])
        both("node1", path).failure("E_HOST_KEY_UNKNOWN")
    else:
        assert not remove and "other hosts" in message


# --- more of both ----------------------------------------------------------------------------------
def test_a_list_of_revoked_keys_in_ssh_keygens_format(both, config, host_key, tmp_path):
    (tmp_path / "key.pub").write_text(host_key)
    for name, gets_in in (("other.pub", True), ("key.pub", False)):
        keygen(tmp_path / "other") if gets_in else None
        revoked = tmp_path / f"{name}.krl"
        run("ssh-keygen", "-q", "-k", "-f", revoked, tmp_path / name)
        outcome = both("node1", config(f"RevokedHostKeys {revoked}"))
        assert "revokedhostkeys" in outcome.errors and (outcome.results["node1"]["result"] == "hello") == gets_in


@pytest.mark.parametrize("key_type", ["ecdsa", "rsa"])
def test_host_keys_of_each_type(both, two, sshd, config, tmp_path, key_type):
    """A server with two keys shows the one by which it is known."""
    for name in ("ed25519", key_type):
        key = tmp_path / name
        run("ssh-keygen", "-q", "-t", name, "-N", "", "-f", key)
        two.execute(1, "sh", "-c", f"umask 77; cat >/run/key_{name}", input=key.read_text())
    # The helper takes one HostKey line: the other is in a file that it includes.
    two.execute(1, "sh", "-c", f"echo HostKey /run/key_{key_type} >/run/more_keys")
    sshd(PORT, HostKey="/run/key_ed25519", Include="/run/more_keys")
    known = tmp_path / "known_hosts"
    known.write_text(f"[node1]:{PORT} {public(tmp_path / key_type)}\n")
    both("node1", config(f"Port {PORT}", f"UserKnownHostsFile {known}", known=False)).hello()


@pytest.mark.parametrize("name", ["node1", "node1-6"])
@pytest.mark.parametrize("port", [22, PORT])
def test_addresses_in_known_hosts(both, sshd, config, host_key, tmp_path, name, port):
    """Of both families, in brackets only with another port."""
    if port != 22:
        sshd(port)
    host = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0]
    known = tmp_path / "known_hosts"
    lines = [f"Port {port}", f"UserKnownHostsFile {known}"]
    for field in (f"[{host}]:{port}", host):
        known.write_text(f"{field} {host_key}\n")
        both(host, config(*lines, known=False))
    known.write_text("")
    both(host, config(*lines, "StrictHostKeyChecking accept-new", known=False)).hello(host)
    assert run("ssh-keygen", "-F", host if port == 22 else f"[{host}]:{port}", "-f", known)


@pytest.mark.parametrize("state", ["locked", "asks its user", "certificate"])
def test_agents_of_other_kinds(both, two, sshd, config, keys, agent, tmp_path, state):
    sshd(PORT)
    lines = [f"Port {PORT}", "StrictHostKeyChecking no"]
    if state == "locked":
        environment = agent(keys.key)
        askpass = tmp_path / "askpass"
        askpass.write_text("#!/bin/sh\necho secret\n")
        askpass.chmod(0o755)
        asking = {**os.environ, **environment, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
        run("ssh-add", "-x", env=asking)
        assert "it has no keys" in both(
            "node1", config(*lines, "IdentityFile /no/such/key", identity=False), environment=environment
        ).failure("E_SSH_AUTH")
    elif state == "asks its user":
        # There is no user to ask: it refuses, and the next key is tried.
        environment = agent()
        first = keygen(tmp_path / "first")
        run("ssh-add", "-q", "-c", first, env={**os.environ, **environment})
        run("ssh-add", "-q", keys.key, env={**os.environ, **environment})
        both("node1", config(*lines, identity=False), environment=environment).hello()
    else:
        ca, mine = keygen(tmp_path / "ca"), keygen(tmp_path / "mine")
        run("ssh-keygen", "-q", "-s", ca, "-I", "me", "-n", "root", f"{mine}.pub")
        two.execute(1, "sh", "-c", "cat >/run/user_ca.pub", input=public(ca) + "\n")
        sshd(PORT + 1, TrustedUserCAKeys="/run/user_ca.pub")
        environment = agent(mine)  # with the certificate, which is next to it
        os.remove(f"{mine}-cert.pub")
        path = config(f"Port {PORT + 1}", "StrictHostKeyChecking no", identity=False)
        both("node1", path, environment=environment).hello()


# --- the newest server -----------------------------------------------------------------------------
ROOTS = os.environ.get("HORA_ROOTS", "")
NEWEST = next((path for name in ("sid-cluster", "sid") if os.path.exists(path := f"{ROOTS}/{name}/usr/sbin/sshd")), "")
NEWEST = NEWEST.removesuffix("/usr/sbin/sshd")


# --- tickets ---------------------------------------------------------------------------------------
KDC_PORT = 8888
KERBEROS_HEAD = 250  # of the address of this machine, in the network of the hosts


@pytest.fixture
def kerberos(two, sshd, tmp_path, monkeypatch):
    """kerberos(ticket): whether this account has one; an sshd on host 1 takes tickets. Its log so far."""
    if not all(shutil.which(program, path="/usr/sbin:/usr/bin") for program in ("krb5kdc", "kadmin.local", "kinit")):
        pytest.skip("krb5-kdc, krb5-admin-server and krb5-user are not installed")
    head = two.address(1).rsplit(".", 1)[0] + f".{KERBEROS_HEAD}"
    client = "[libdefaults]\n default_realm = TEST\n dns_lookup_kdc = false\n rdns = false\n"
    client += f"[realms]\n TEST = {{\n  kdc = {head}:{KDC_PORT}\n }}\n"
    (tmp_path / "krb5.conf").write_text(client)
    server = f"[kdcdefaults]\n kdc_ports = {KDC_PORT}\n kdc_tcp_ports = {KDC_PORT}\n[realms]\n TEST = {{\n"
    server += f"  database_name = {tmp_path}/principal\n  key_stash_file = {tmp_path}/stash\n }}\n"
    (tmp_path / "kdc.conf").write_text(server)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    monkeypatch.setenv("KRB5_KDC_PROFILE", str(tmp_path / "kdc.conf"))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    run("/usr/sbin/kdb5_util", "create", "-s", "-r", "TEST", "-P", "master")
    for query in (
        "addprinc -pw secret root@TEST",
        "addprinc -randkey host/node1@TEST",
        f"ktadd -k {tmp_path}/keytab host/node1@TEST",
    ):
        run("/usr/sbin/kadmin.local", "-q", query)
    two.execute(1, "sh", "-c", "cat >/run/krb5.conf", input=client)
    with open(tmp_path / "keytab", "rb") as file:
        keytab = base64.b64encode(file.read()).decode()
    two.execute(1, "sh", "-c", "base64 -d >/run/keytab", input=keytab)
    kdc = subprocess.Popen(
        ["/usr/sbin/krb5kdc", "-r", "TEST", "-n"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    sshd(
        PORT,
        GSSAPIAuthentication="yes",
        GSSAPIStrictAcceptorCheck="no",
        LogLevel="VERBOSE",
        environment=["KRB5_CONFIG=/run/krb5.conf", "KRB5_KTNAME=/run/keytab"],
        log="/run/tickets.log",
    )

    def state(ticket):
        if ticket:
            jobs.wait_until(
                lambda: (
                    subprocess.run(["kinit", "root@TEST"], input="secret\n", text=True, capture_output=True).returncode
                    == 0
                ),
                "a ticket",
            )
        return lambda: two.execute(1, "cat", "/run/tickets.log")

    yield state
    kdc.kill()
    kdc.wait()


@pytest.mark.parametrize("ticket", [True, False])
def test_tickets(kerberos, probe, two, config, wrong_keys, ticket):
    """With a ticket the ssh program gets in. Without one a wrong key is shown once, although Debian's configuration
    allows tickets for every host."""
    log = kerberos(ticket)
    path = config(
        f"Port {PORT}",
        "GSSAPIAuthentication yes",
        f"IdentityFile {wrong_keys[0]}",
        "IdentitiesOnly yes",
        identity=False,
    )
    ssh = subprocess.run(["ssh", "-o", "BatchMode=yes", "-F", path, "node1", "true"], capture_output=True, text=True)
    assert (ssh.returncode == 0) == ticket, ssh.stderr
    before = log().count("Failed publickey")
    outcome = probe("node1", "--config", path, environment={"SSH_AUTH_SOCK": ""})
    if ticket:
        outcome.hello()
        assert "the server offers gssapi-with-mic" in outcome.errors
    else:
        assert outcome.results["node1"]["code"] == "E_SSH_AUTH", outcome
        assert wrong_keys[0] in str(outcome.results["node1"]), outcome
        assert log().count("Failed publickey") == before + 1, log()


@pytest.fixture
def newest_sshd(two, mounts):
    """newest_sshd(RefuseConnection="yes"): the sshd of Debian sid on host 1."""
    if not NEWEST:
        pytest.skip("takes HORA_ROOTS with sid-cluster (tests/support/roots/make)")
    work = "/run/newest"
    two.execute(1, "mkdir", "-p", work)
    mounts.mount(1, work, "-t", "tmpfs", "tmpfs")
    two.execute(1, "mkdir", f"{work}/upper", f"{work}/work", f"{work}/root")
    layers = f"lowerdir={NEWEST},upperdir={work}/upper,workdir={work}/work"
    mounts.mount(1, f"{work}/root", "-t", "overlay", "-o", layers, "overlay")
    for folder in ("/proc", "/dev", "/run/host"):
        two.execute(1, "mkdir", "-p", f"{work}/root{folder}")
        mounts.mount(1, f"{work}/root{folder}", "--rbind", folder)
    two.execute(1, "mkdir", "-p", f"{work}/root/run/sshd")
    pids = []

    def start(**settings):
        lines = [f"Port {PORT}", "HostKey /run/host/host_key", "AuthorizedKeysFile /run/host/key.pub", "UsePAM no"]
        lines += ["StrictModes no", "PidFile /run/sshd.pid", *(f"{name} {value}" for name, value in settings.items())]
        text = "".join(f"{line}\n" for line in lines)
        two.execute(1, "sh", "-c", f"cat >{work}/root/run/sshd_config", input=text)
        two.execute(1, "chroot", f"{work}/root", "/usr/sbin/sshd", "-f", "/run/sshd_config")
        pids.append(
            jobs.wait_until(lambda: two.execute(1, "sh", "-c", f"cat {work}/root/run/sshd.pid || :").strip(), "sshd")
        )

    yield start
    for pid in pids:
        two.execute(1, "kill", pid)


def test_a_server_that_refuses_connections(both, newest_sshd, config):
    newest_sshd(RefuseConnection="yes")
    message = both("node1", config(f"Port {PORT}", "StrictHostKeyChecking no")).failure("E_SSH_AUTH")
    assert "ended the login of user root without looking at a key" in message and "RefuseConnection" in message


def test_a_server_that_punishes_failed_logins(probe, newest_sshd, config, wrong_keys):
    """Seven refusals, and not as long as the start may take; a login that works then is not punished."""
    newest_sshd(PerSourcePenalties="authfail:1000s min:1s")
    lines = [f"Port {PORT}", f"IdentityFile {wrong_keys[0]}", "IdentitiesOnly yes", "StrictHostKeyChecking no"]
    path = config(*lines, identity=False)
    probe("node1", "--config", path).failure("E_SSH_AUTH")
    message = probe("node1", "--config", path, "--deadline-ms", 60000).failure("E_SSH_BUSY")
    assert "refused the connection 7 times" in message and "PerSourcePenaltyExemptList" in message


def test_a_server_with_post_quantum_key_exchange_alone(both, newest_sshd, config):
    newest_sshd(KexAlgorithms="sntrup761x25519-sha512")
    both("node1", config(f"Port {PORT}", "StrictHostKeyChecking no")).hello()
