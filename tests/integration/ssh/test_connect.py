# SPDX-License-Identifier: Apache-2.0
"""Connecting to a host and logging in, and the error for each way in which that fails."""

import base64
import contextlib
import os
import re
import socket
import struct
import subprocess
import threading

import pytest


def test_sixteen_hosts_at_once(probe, hosts):
    up = hosts(16)
    outcome = probe(up.names)
    for name in up.names:
        outcome.hello(name)
    assert len({outcome.hello(name)["pid"] for name in up.names}) >= 1
    # The second time the agents are there at once, and their words come with the answer to the exec.
    again = probe(up.names)
    for name in up.names:
        assert [stage for host, stage, _ in again.stages if host == name][-2:] == ["shell", "agent"]


def test_one_bad_host_among_good_ones(probe, two):
    outcome = probe(["node1", "no-such-host.invalid", "node2"])
    outcome.hello("node1"), outcome.hello("node2")
    assert "no-such-host.invalid" in outcome.failure("E_RESOLVE", "no-such-host.invalid")


def test_fan_out_of_one(probe, two):
    outcome = probe(["node1", "node2"], "--fan-out", 1)
    outcome.hello("node1"), outcome.hello("node2")
    order = [(host, stage) for host, stage, _ in outcome.stages]
    first, second = ("node1", "node2") if order[0][0] == "node1" else ("node2", "node1")
    assert order.index((first, "agent")) < order.index((second, "resolve"))


def test_ipv6(probe, two):
    probe("node1-6").hello("node1-6")


def test_a_link_local_address_names_its_interface(horarun, two, config, tmp_path):
    address = two.execute(1, "ip", "-6", "-brief", "address", "show", "scope", "link", "dev", "eth0")
    host = f"{address.split()[2].split('/')[0]}%hh-br0"
    path = config(f"UserKnownHostsFile {tmp_path}/known", known=False)
    done = horarun.run("-H", f"[{host}]:2", "--ssh-config-file", path, "--accept-new-host-keys", "hostname").expect(0)
    assert done.ranks() == {0: ["node1"], 1: ["node1"]}
    assert f"hostname {host}" in done.messages, done


def test_refused(probe, two):
    message = probe("node1", "--port", 1).failure("E_CONNECT_REFUSED")
    assert re.search(r"10\.79\.0\.1:1: Connection refused", message)


def test_black_hole(probe, two, config):
    rule = "table ip hole { chain in { type filter hook input priority 0; tcp dport 22 drop; }; }"
    two.execute(1, "nft", rule)
    try:
        outcome = probe(["node1", "node2"], "--config", config("ConnectTimeout 2"))
    finally:
        two.execute(1, "nft", "delete table ip hole")
    outcome.hello("node2")
    message = outcome.failure("E_CONNECT_TIMEOUT")
    assert re.search(r"no answer from 10\.79\.0\.1:22 within [2-9]\.\d s", message)


def test_frozen(probe, two):
    two.act("freeze", 1)
    try:
        outcome = probe(["node1", "node2"], "--deadline-ms", 8000)
    finally:
        two.act("thaw", 1)
    outcome.hello("node2")
    message = outcome.failure("E_CONNECT_TIMEOUT")
    assert "no SSH banner" in message and "restart its sshd" in message


class Listener:
    """Says something to each client that connects to it on this machine, and hangs up."""

    def __init__(self, words):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.words = words
        self.count = 0
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.count += 1
            if self.words:
                connection.sendall(self.words)
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def test_not_an_ssh_server(probe, two):
    with Listener(b"HTTP/1.0 400 Bad Request\r\n\r\n") as listener:
        message = probe("127.0.0.1", "--port", listener.port).failure("E_SSH_PROTOCOL", "127.0.0.1")
    assert "HTTP/1.0 400 Bad Request" in message


@pytest.mark.parametrize("words", [b"", b"Exceeded MaxStartups\r\n", b"Not allowed at this time\r\n"])
def test_a_server_that_is_too_busy_for_good(probe, two, words):
    with Listener(words) as listener:
        message = probe("127.0.0.1", "--port", listener.port, "--deadline-ms", 2500).failure("E_SSH_BUSY", "127.0.0.1")
        assert 3 <= listener.count <= 20, "tries without a pause, or without another try"
    assert "MaxStartups" in message


def test_max_startups(probe, two, sshd, config):
    """Six launchers for a server that takes two at a time: all get in."""
    flags = [*sshd(2222, MaxStartups=2), "--config", config("StrictHostKeyChecking accept-new")]
    idle = []
    while len(idle) < 3:  # until the server hangs up on one
        connection = socket.create_connection(("10.79.0.1", 2222), timeout=10)
        idle.append(connection)
        if not connection.recv(4).startswith(b"SSH-"):
            break
    release = threading.Timer(1.0, lambda: [connection.close() for connection in idle])
    release.start()
    running = [subprocess.Popen(probe.argv("node1", *flags), stdout=subprocess.PIPE, text=True) for _ in range(6)]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert all('"result":"hello"' in out for out in outputs), outputs
    assert any("busy" in out for out in outputs)


# --- keys ------------------------------------------------------------------------------------------
def new_key(tmp_path, *options):
    path = str(tmp_path / "other_key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-f", path, *(options or ("-N", ""))], check=True)
    return path


def test_wrong_key(probe, two, config, tmp_path):
    key = new_key(tmp_path)
    message = probe("node1", "--config", config(f"IdentityFile {key}", "IdentitiesOnly yes", identity=False)).failure(
        "E_SSH_AUTH"
    )
    assert key in message and "user root" in message


def test_a_missing_identity_is_named(probe, two, config):
    message = probe(
        "node1", "--config", config("IdentityFile /no/such/key", "IdentitiesOnly yes", identity=False)
    ).failure("E_SSH_AUTH")
    assert "/no/such/key (missing)" in message


def test_identity_option(probe, two, config, keys):
    probe("node1", "--identity", keys.key, "--config", config("IdentityFile /no/such/key", identity=False)).hello()


def test_several_keys_of_which_the_last_one_fits(probe, two, config, keys, tmp_path):
    first = new_key(tmp_path)
    lines = [f"IdentityFile {first}", f"IdentityFile {keys.key}"]
    probe("node1", "--config", config(*lines, identity=False)).hello()


def test_a_key_with_a_passphrase(probe, two, config, tmp_path):
    key = new_key(tmp_path, "-N", "secret")
    message = probe(
        "node1", "--config", config(f"IdentityFile {key}", identity=False), environment={"SSH_AUTH_SOCK": ""}
    ).failure("E_SSH_AUTH")
    assert "passphrase" in message


def test_ssh_agent(probe, two, config, keys, agent):
    probe(["node1", "node2"], "--config", config(identity=False), environment=agent(keys.key)).hello()


def test_ssh_agent_without_the_key(probe, two, config, agent):
    message = probe("node1", "--config", config(identity=False), environment=agent()).failure("E_SSH_AUTH")
    assert "ssh-agent" in message


def test_an_ssh_agent_that_says_nothing(probe, two, config, tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen(20)
        message = probe(
            ["node1", "node2"],
            "--config",
            config(identity=False),
            environment={"SSH_AUTH_SOCK": str(tmp_path / "silent")},
        ).failure("E_SSH_AUTH")
    assert "it does not answer" in message


class Hesitant(threading.Thread):
    """An ssh-agent that knows a key and never signs: it asks its user, who is away."""

    def __init__(self, path, public_key):
        super().__init__(daemon=True)
        self.blob = base64.b64decode(public_key.split()[1])
        self.asked = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(20)
        self.held = []

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                self.held.append(self.listener.accept()[0])
                threading.Thread(target=self.serve, args=(self.held[-1],), daemon=True).start()

    def serve(self, link):
        with contextlib.suppress(OSError):
            while len(head := link.recv(4, socket.MSG_WAITALL)) == 4:
                message = link.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)
                if message[0] == 11:  # which keys are there?
                    keys = struct.pack(">BII", 12, 1, len(self.blob)) + self.blob + struct.pack(">I", 0)
                    link.sendall(struct.pack(">I", len(keys)) + keys)
                elif message[0] == 13:  # sign this
                    self.asked.set()

    def close(self):
        self.listener.close()
        for link in self.held:
            link.close()


def test_an_ssh_agent_that_waits_for_its_user_does_not_outlast_the_start(horarun, two, config, keys, tmp_path):
    path = str(tmp_path / "agent")
    with open(keys.key + ".pub") as file:
        agent = Hesitant(path, file.read())
    agent.start()
    try:
        done = horarun.run(
            "-np",
            2,
            "-H",
            two.spec(1),
            "--start-timeout",
            "4s",
            "--ssh-config-file",
            config(identity=False),
            "true",
            env={"SSH_AUTH_SOCK": path},
            timeout=60,
        ).expect(124)
        assert agent.asked.is_set(), done
        assert done.seconds < 30, done  # and not until the agent answers
    finally:
        agent.close()


def test_a_config_without_end_is_an_error(horarun):
    done = horarun.run("-np", 1, "-H", "somewhere.invalid", "--ssh-config-file", "/dev/zero", "true")
    assert done.code == 125 and "/dev/zero is not a regular file" in done.messages, done


def test_no_config(horarun, two):
    """The test hosts' key and known_hosts are in the system's configuration."""
    by_ssh = subprocess.run(["ssh", "-F", "none", "-o", "BatchMode=yes", "node1", "true"], capture_output=True)
    assert b"Host key verification failed" in by_ssh.stderr, by_ssh
    done = horarun.run("-H", "node1:1", "--ssh-config-file", "none", "true").expect(125)
    assert "[E_HOST_KEY_UNKNOWN]" in done.messages, done


def test_configs_that_include_each_other_are_an_error(horarun, tmp_path):
    path = tmp_path / "config"
    path.write_text(f"Include {path}\n" * 3)
    done = horarun.run("-np", 1, "-H", "somewhere.invalid", "--ssh-config-file", path, "true")
    assert done.code == 125 and "Include leads to too many files" in done.messages, done


def test_unknown_user(probe, two):
    assert "no-such-user" in probe("no-such-user@node1").failure("E_SSH_AUTH")


def test_a_server_that_takes_no_keys(probe, two, sshd):
    flags = sshd(2235, PubkeyAuthentication="no", PasswordAuthentication="yes")
    message = probe("node1", *flags, "--accept-new").failure("E_SSH_AUTH")
    assert "no key was accepted" in message and "wants password" in message


def test_a_server_that_asks_for_a_second_proof(probe, two, sshd):
    flags = sshd(2236, AuthenticationMethods="publickey,password", PasswordAuthentication="yes")
    message = probe("node1", *flags, "--accept-new").failure("E_SSH_AUTH")
    assert "a key alone does not let user root in" in message and "wants password" in message


def test_pipes_among_the_files_are_not_waited_for(probe, two, config, keys, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = config(f"IdentityFile {pipe}", f"UserKnownHostsFile {pipe} {keys.known_hosts}", known=False)
    probe("node1", "--config", path, "--deadline-ms", 20000).hello()


# --- host keys -------------------------------------------------------------------------------------
def fingerprint(hosts, k):
    text = hosts.execute(k, "ssh-keygen", "-lf", "/run/host/host_key.pub")
    return text.split()[1]


def test_unknown_host_key(probe, two, config, tmp_path):
    known = tmp_path / "known_hosts"
    message = probe("node1", "--config", config(f"UserKnownHostsFile {known}", known=False)).failure(
        "E_HOST_KEY_UNKNOWN"
    )
    assert fingerprint(two, 1) in message
    assert "ssh-keyscan" in message and "--accept-new-host-keys" in message
    assert not known.exists()


def test_accepting_new_host_keys(probe, hosts, config, tmp_path):
    up = hosts(16)
    known = tmp_path / "ssh" / "known_hosts"
    path = config(f"UserKnownHostsFile {known}", known=False)
    outcome = probe(up.names, "--accept-new", "--config", path)
    for name in up.names:
        outcome.hello(name)
    lines = known.read_text().splitlines()
    assert len(lines) == 16 and all(re.fullmatch(r"node\d+ ssh-ed25519 \S+", line) for line in lines)
    again = probe(up.names, "--config", path)
    for name in up.names:
        again.hello(name)
    assert known.read_text().splitlines() == lines


def test_strict_host_key_checking_accept_new(probe, two, config, tmp_path):
    known = tmp_path / "known_hosts"
    path = config(f"UserKnownHostsFile {known}", "StrictHostKeyChecking accept-new", known=False)
    probe("node1", "--config", path).hello()
    assert known.read_text().startswith("node1 ssh-ed25519 ")


@pytest.mark.parametrize(
    "flags,line",
    [([], "StrictHostKeyChecking yes"), (["--accept-new"], "LogLevel ERROR")],
)
def test_changed_host_key(probe, two, config, keys, tmp_path, flags, line):
    with open(keys.known_hosts) as file:
        other = next(entry.split(" ", 1)[1] for entry in file if entry.startswith("node2,"))
    known = tmp_path / "known_hosts"
    known.write_text("node1 " + other)
    path = config(f"UserKnownHostsFile {known}", line, known=False)
    message = probe("node1", "--config", path, *flags).failure("E_HOST_KEY_CHANGED")
    assert str(known) in message and "ssh-keygen -R node1" in message
    assert known.read_text() == "node1 " + other


def test_revoked_host_key(probe, two, config, keys, tmp_path):
    with open(keys.known_hosts) as file:
        key = next(entry.split(" ", 1)[1] for entry in file if entry.startswith("node1,"))
    known = tmp_path / "known_hosts"
    known.write_text("@revoked * " + key)
    path = config(f"UserKnownHostsFile {known}", known=False)
    assert "revoked" in probe("node1", "--config", path, "--accept-new").failure("E_HOST_KEY_CHANGED")


def test_revoked_host_keys(probe, two, config, keys, tmp_path):
    with open(keys.known_hosts) as file:
        key = next(entry.split(" ", 1)[1] for entry in file if entry.startswith("node1,"))
    revoked = tmp_path / "revoked"
    path = config(f"RevokedHostKeys {revoked}")
    assert "in revoked keys file" in probe("node1", "--config", path).failure("E_HOST_KEY_UNKNOWN")
    revoked.write_text(key)
    outcome = probe(["node1", "node2"], "--config", path)
    outcome.hello("node2")
    assert "revoked by file" in outcome.failure("E_HOST_KEY_CHANGED", "node1")


def test_hashed_known_hosts(probe, two, config, keys, tmp_path):
    known = tmp_path / "known_hosts"
    with open(keys.known_hosts) as file:
        known.write_text(file.read())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "node1" not in known.read_text()
    probe("node1", "--config", config(f"UserKnownHostsFile {known}", known=False)).hello()


# --- config ----------------------------------------------------------------------------------------
def test_alias(probe, two, config):
    path = config("Host somewhere", "HostName node2", "Host *", "User root")
    probe("somewhere", "--config", path).hello("somewhere")


@pytest.mark.parametrize("line", ["ProxyJump node2", "ProxyCommand ssh -W %h:%p node2"])
def test_proxy(probe, two, config, line):
    """node1 refuses this machine; node2 leads there."""
    rule = "table ip wall { chain in { type filter hook input priority 0; ip saddr 10.79.0.250 drop; }; }"
    two.execute(1, "nft", rule)
    try:
        path = config("Host node1", line, "Host *")
        probe("node1", "--config", path).hello()
    finally:
        two.execute(1, "nft", "delete table ip wall")


@pytest.mark.parametrize("where", ["", "sub/../*"])
def test_a_folder_among_the_included_files(probe, two, config, tmp_path, where):
    (tmp_path / "conf.d" / "sub").mkdir(parents=True)
    (tmp_path / "conf.d" / "port").write_text("Port 22\n")
    probe("node1", "--config", config(f"Include {tmp_path}/conf.d/{where}")).hello()


def test_a_proxy_that_fails(probe, two, config):
    path = config("Host node1", "ProxyCommand sh -c 'echo no way >&2; exit 1'")
    assert "no way" in probe("node1", "--config", path).failure("E_CONNECT")


def test_a_proxy_that_ends_without_a_word(probe, two, config):
    path = config("Host node1", "ProxyCommand false")
    message = probe("node1", "--config", path, "--deadline-ms", 2500).failure("E_CONNECT")
    assert "the proxy command ended" in message and "ProxyCommand" in message


@pytest.mark.parametrize("line", ["PubkeyAuthentication no", "PreferredAuthentications password,keyboard-interactive"])
def test_a_config_that_rules_out_keys(probe, two, config, line):
    assert line in probe("node1", "--config", config(line)).failure("E_SSH_AUTH")


def test_where_connections_come_from(probe, two, config):
    probe("node1", "--config", config("BindAddress 10.79.0.250")).hello()
    probe("node1", "--config", config("BindInterface hh-br0")).hello()
    assert "bind 192.0.2.1" in probe("node1", "--config", config("BindAddress 192.0.2.1")).failure("E_RSH")
    assert "no-such" in probe("node1", "--config", config("BindInterface no-such")).failure("E_RSH")


def test_what_libssh_cannot_do_the_ssh_program_does(horarun, two, config, keys):
    path = config(f"KnownHostsCommand /bin/cat {keys.known_hosts}", "UserKnownHostsFile none", known=False)
    done = horarun.run("-H", "node1:1,node2:1", "--ssh-config-file", path, "true").expect(0)
    assert done.messages.count("the ssh program connects to node") == 1, done
    assert f"knownhostscommand /bin/cat {keys.known_hosts}" in done.messages, done
