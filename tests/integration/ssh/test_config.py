# SPDX-License-Identifier: Apache-2.0
"""What an ssh configuration means: horarun next to the ssh of this machine."""

import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import configs
import pytest

FILES = int(os.environ.get("HORA_SSH_CONFIGS", "300"))
SEED = int(os.environ.get("HORA_SEED", "1"))


def resolve(probe, config, hosts, environment):
    """The fields of each host, as horarun connects with them."""
    argv = [probe.program, "--resolve", *(["--config", str(config)] if config else [])]
    for host in hosts:
        argv += ["--host", host]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=120, env={**os.environ, **configs.ENVIRONMENT, **environment}
    )
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def compare(probe, tmp, defaults, number, text):
    """The disagreements about one file."""
    config = f"{tmp}/config{number}"
    with open(config, "w") as file:
        file.write(text)
    environment = {"XDG_CACHE_HOME": f"{tmp}/cache{number}"}
    ours, _ = resolve(probe, config, configs.HOSTS, environment)
    again, _ = resolve(probe, config, configs.HOSTS, environment)
    wrong = [] if again == ours else [(text, "remembered", ours, again)]
    for host, fields in zip(configs.HOSTS, ours):
        user, _, name = host.rpartition("@")
        said, words = configs.ask_ssh("-F", config, *(["-l", user] if user else []), "--", name)
        if said is None:
            if words.splitlines()[0].strip() not in fields.get("problem", ""):
                wrong.append((text, host, words, fields))
            continue
        expected = configs.meaning(name, said, defaults, config)
        found = {**fields, "program": bool(fields.get("program"))}
        differences = {key: (value, found.get(key)) for key, value in expected.items() if found.get(key) != value}
        # By the ssh program, ssh itself applies what it has said.
        if expected["program"] and found["program"]:
            differences = {}
        if differences:
            wrong.append((text, host, differences, fields.get("program")))
    return wrong


def test_configurations_mean_what_ssh_says(probe, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    tmp = str(tmp_path)
    configs.prepare(tmp)
    defaults, _ = configs.ask_ssh("-F", "/dev/null", "--", "host")
    texts = list(configs.files(tmp, FILES, SEED))
    assert len(texts) == FILES
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda each: compare(probe, tmp, defaults, *each), enumerate(texts)))
    wrong = [each for result in results for each in result]
    assert not wrong, f"{len(wrong)} disagreements, seed {SEED}: " + "\n\n".join(map(repr, wrong[:5]))


# --- what is remembered ----------------------------------------------------------------------------
@pytest.fixture
def counted_ssh(tmp_path):
    """An ssh that counts how often it is asked, first in the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "asked"
    log.write_text("")
    (folder / "ssh").write_text(f'#!/bin/sh\necho "$*" >>{log}\nexec {shutil.which("ssh")} "$@"\n')
    (folder / "ssh").chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return environment, lambda: len(log.read_text().splitlines())


def test_answers_are_remembered_until_a_file_changes(probe, tmp_path, counted_ssh):
    environment, asked = counted_ssh
    (tmp_path / "more").mkdir()
    config = tmp_path / "config"
    config.write_text(f"Include {tmp_path}/more/*\n")
    ports = lambda: [each["port"] for each in resolve(probe, config, ["a", "b"], environment)[0]]  # noqa: E731
    assert ports() == [22, 22] and asked() == 3  # and once without a configuration
    assert ports() == [22, 22] and asked() == 3
    (tmp_path / "more" / "new").write_text("Host b\nPort 7\n")
    assert ports() == [22, 7] and asked() == 6
    (tmp_path / "more" / "new").write_text("Host b\nPort 8\n")
    assert ports() == [22, 8] and asked() == 9
    assert ports() == [22, 8] and asked() == 9
    folder = tmp_path / "cache" / "hora-launcher"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in folder.iterdir())


@pytest.mark.parametrize("line", ["Match exec true", 'Match host a exec "exit 1"', "CanonicalizeHostname yes"])
def test_what_depends_on_more_than_files_is_asked_again(probe, tmp_path, counted_ssh, line):
    environment, asked = counted_ssh
    config = tmp_path / "config"
    config.write_text(f"{line}\nPort 7\n")
    resolve(probe, config, ["a"], environment)
    assert asked() == 2
    resolve(probe, config, ["a"], environment)
    assert asked() == 4


def test_a_variable_is_part_of_what_is_remembered(probe, tmp_path, counted_ssh):
    environment, asked = counted_ssh
    config = tmp_path / "config"
    config.write_text("UserKnownHostsFile ${HORA_KNOWN}\n")
    for known in ("/one", "/two", "/two"):
        fields, _ = resolve(probe, config, ["a"], {**environment, "HORA_KNOWN": known})
        assert fields[0]["known_hosts"][0] == known
    assert asked() == 4


def test_without_an_ssh_program_libssh_reads_the_file(probe, tmp_path):
    config = tmp_path / "config"
    (tmp_path / "key").write_text("k")
    config.write_text(
        f"Host a\n  HostName 10.0.0.7\n  Port 2222\n  User eve\n  IdentityFile {tmp_path}/key\n  Tunnel yes\n"
    )
    fields, said = resolve(probe, config, ["a", "b"], {"PATH": str(tmp_path)})
    a, b = fields
    assert (a["address"], a["port"], a["user"]) == ("10.0.0.7", 2222, "eve")
    assert a["files"][0] == f"{tmp_path}/key" and a["program"] == ""
    assert (b["address"], b["port"]) == ("b", 22)
    assert "tunnel" in said.lower()


# --- what is offered -------------------------------------------------------------------------------
class Offers:
    """A server that reads the lists of algorithms that a client offers (RFC 4253, 7.1)."""

    NAMES = ("kexalgorithms", "hostkeyalgorithms", "ciphers", "ciphers in", "macs", "macs in")

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lists = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"SSH-2.0-offers\r\n")
                stream = connection.makefile("rb")
                stream.readline()
                head = stream.read(4)
                if len(head) < 4:
                    continue
                packet = stream.read(struct.unpack(">I", head)[0])
                at, lists = 1 + 1 + 16, []  # padding, type and cookie come first
                for _ in self.NAMES:
                    size = struct.unpack_from(">I", packet, at)[0]
                    lists.append(packet[at + 4 : at + 4 + size].decode().split(","))
                    at += 4 + size
                self.lists.append(dict(zip(self.NAMES, lists)))


ALGORITHMS = [
    "Ciphers -aes256-ctr", "Ciphers -aes256*,chacha*", "Ciphers ^aes192-ctr", "Ciphers +aes256-cbc",
    "Ciphers aes128-ctr",
    "MACs -*sha1*", "MACs hmac-sha2-512", "MACs ^hmac-sha2-512", "KexAlgorithms -*nistp*,*group14*",
    "KexAlgorithms +diffie-hellman-group1-sha1", "KexAlgorithms curve25519-sha256", "HostKeyAlgorithms -ecdsa*",
    "HostKeyAlgorithms +ssh-rsa", "HostKeyAlgorithms rsa-sha2-256", "Port 22",
]  # fmt: skip
EXTRAS = ("ext-info-c", "kex-strict-c-v00@openssh.com")


@pytest.mark.parametrize("line", ALGORITHMS)
def test_nothing_is_offered_that_ssh_would_not(probe, tmp_path, line):
    offers = Offers()
    config = tmp_path / "config"
    config.write_text(f"{line}\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
    said, words = configs.ask_ssh("-F", str(config), "--", "127.0.0.1")
    assert said, words
    probe("127.0.0.1", "--config", config, "--port", offers.port, "--deadline-ms", 2000)
    offers.listener.close()
    assert offers.lists
    first = offers.lists[0]
    for name in Offers.NAMES:
        allowed = said[name.split()[0]][0].split(",")
        offered = [each for each in first[name] if each not in EXTRAS]
        assert offered and not set(offered) - set(allowed), (name, offered, allowed)
        keyword = line.split()[0].lower()
        if keyword == name.split()[0] and name != "hostkeyalgorithms":
            assert offered == [each for each in allowed if each in offered], "not in the order that is asked for"


# --- in or not in, as ssh --------------------------------------------------------------------------
CASES = {
    "a removed cipher": ({"Ciphers": "aes256-ctr"}, ["Ciphers -aes256-ctr"]),
    "an added cipher": ({"Ciphers": "aes128-cbc"}, ["Ciphers +aes128-cbc"]),
    "an old cipher": ({"Ciphers": "aes128-cbc"}, []),
    "a removed mac": ({"Ciphers": "aes128-ctr", "MACs": "hmac-sha2-512"}, ["MACs -hmac-sha2-512"]),
    "a mac that libssh lacks": ({"Ciphers": "aes128-ctr", "MACs": "umac-128@openssh.com"}, []),
    "a removed kex": ({"KexAlgorithms": "ecdh-sha2-nistp256"}, ["KexAlgorithms -ecdh*"]),
    "an added kex": ({"KexAlgorithms": "diffie-hellman-group14-sha1"}, ["KexAlgorithms +diffie-hellman-group14-sha1"]),
    "a post-quantum kex": ({"KexAlgorithms": "sntrup761x25519-sha512@openssh.com"}, []),
    "a removed type of key": ({}, ["PubkeyAcceptedAlgorithms -*ed25519*"]),
    "no host key left": ({}, ["HostKeyAlgorithms rsa-sha2-512"]),
    "keys switched off": ({}, ["PubkeyAuthentication false"]),
    "other methods only": ({}, ["PreferredAuthentications hostbased,password"]),
    "IdentityFile none": ({}, ["IdentityFile none", "IdentityAgent none"], False),
    "tokens": ({}, ["IdentityFile {keys}/%n-%r-%p-%%", "IdentityAgent none"], False),
    "a hash": ({}, ["IdentityFile {keys}/x%C", "IdentityFile {key}"], False),
    "a variable": ({}, ["IdentityFile ${{HORA_TEST_KEY}}"], False),
    "a variable that is not set": ({}, ["IdentityFile ${{HORA_NOT_SET}}", "IdentityFile {key}"], False),
    "quotes": ({}, ["IdentityFile '{keys}/a key'"], False),
    "an escaped blank": ({}, ["IdentityFile {keys}/a\\ key"], False),
    "Match final": ({}, ["Match final host node1", "IdentityFile {key}"], False),
    "Match exec": ({}, ['Match exec "test %h = node1"', "IdentityFile {key}"], False),
    "Match exec that fails": ({}, ['Match exec "test %h = other"', "IdentityFile {key}"], False),
    "letter case": ({}, ["Host NODE1", "IdentityFile {key}"], False),
    "ProxyJump none": ({}, ["ProxyJump none", "ProxyCommand sh -c 'echo no >&2; exit 7'"]),
    "a time": ({}, ["ConnectTimeout 1m30s"]),
    "forwardings": ({}, ["RemoteForward 40022 localhost:22", "ForwardAgent yes"]),
    "SetEnv": ({}, ["SetEnv A=b"]),
    "RekeyLimit": ({}, ["RekeyLimit 1M"]),
    "Compression": ({"Compression": "yes"}, ["Compression yes"]),
    "RemoteCommand": ({}, ["RemoteCommand true"]),
    "a session without a command": ({}, ["RequestTTY force", "StdinNull no", "ForkAfterAuthentication no"]),
    "KnownHostsCommand": ({}, ["KnownHostsCommand /bin/cat {known_as}", "UserKnownHostsFile none"]),
    "a wrong KnownHostsCommand": ({}, ["KnownHostsCommand /bin/echo", "UserKnownHostsFile none"]),
    "an alias": ({}, ["HostKeyAlias node1"]),
    "an unknown alias": ({}, ["HostKeyAlias %h-key"]),
    "a known_hosts file with a blank": ({}, ['UserKnownHostsFile "{keys}/known hosts"']),
    "known_hosts by a token": ({}, ["UserKnownHostsFile {keys}/known_%k"]),
    "RequiredRSASize": ({}, ["RequiredRSASize 4096"]),
    "BindAddress by name": ({}, ["BindAddress localhost"]),
    "ConnectionAttempts": ({}, ["ConnectionAttempts 3"]),
    "a wrong line": ({}, ["NoSuchKeyword yes"]),
    "VerifyHostKeyDNS": ({}, ["VerifyHostKeyDNS ask"]),
}


@pytest.fixture
def files(tmp_path, keys, two):
    """Keys and known_hosts files under the names of the cases."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a key", "node1-root-2240-%"):
        shutil.copy(keys.key, folder / name)
    host_key = two.execute(1, "cat", "/run/host/host_key.pub").split()
    for name in ("known hosts", "known_node1", "known"):
        (folder / name).write_text(f"[node1]:2240 {host_key[0]} {host_key[1]}\nnode1 {host_key[0]} {host_key[1]}\n")
    return {"keys": folder, "key": keys.key, "known_as": folder / "known"}


@pytest.mark.parametrize("case", CASES)
def test_in_or_not_in_as_ssh(probe, two, sshd, files, tmp_path, monkeypatch, case):
    settings, lines, *identity = CASES[case]
    monkeypatch.setenv("HORA_TEST_KEY", files["key"])
    flags = sshd(2240, **settings)
    config = tmp_path / "config"
    text = ["User root", *(line.format(**files) for line in lines)]
    known = [f"Match all\nUserKnownHostsFile {files['known_as']}"]
    own = [] if identity else [f"IdentityFile {files['key']}"]
    config.write_text("\n".join([*text, *known, *own]) + "\n")
    ssh = subprocess.run(
        ["ssh", "-F", str(config), "-p", "2240", "-o", "BatchMode=yes", "node1", "true"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    outcome = probe("node1", "--config", config, *flags)
    assert (outcome.results["node1"]["result"] == "hello") == (ssh.returncode == 0), f"{ssh.stderr}\n{outcome}"


def test_certificates_of_users_and_hosts(probe, two, sshd, files, tmp_path):
    """Both sides vouched for by an authority: by the ssh program, which says so once."""
    authority = tmp_path / "authority"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", authority], check=True)
    public = authority.with_suffix(".pub").read_text()
    key = tmp_path / "user"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    subprocess.run(["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", "root", f"{key}.pub"], check=True)
    (tmp_path / "host.pub").write_text(two.execute(1, "cat", "/run/host/host_key.pub"))
    subprocess.run(
        ["ssh-keygen", "-q", "-s", authority, "-h", "-I", "n", "-n", "node1", tmp_path / "host.pub"], check=True
    )
    two.execute(1, "sh", "-c", "cat >/run/host/ca.pub", input=public)
    two.execute(1, "sh", "-c", "cat >/run/host/host-cert.pub", input=(tmp_path / "host-cert.pub").read_text())
    flags = sshd(2241, TrustedUserCAKeys="/run/host/ca.pub", HostCertificate="/run/host/host-cert.pub")
    known = tmp_path / "known"
    known.write_text(f"@cert-authority node* {public}")
    config = tmp_path / "config"
    config.write_text(f"User root\nIdentityFile {key}\nUserKnownHostsFile {known}\n")
    outcome = probe("node1", "--config", config, *flags)
    outcome.hello()
    assert outcome.errors.count("the ssh program connects to node1") == 1 and f"{key}-cert.pub" in outcome.errors
    # Without the user's certificate that of the host is still needed.
    config.write_text(f"User root\nIdentityFile {files['key']}\nUserKnownHostsFile {known}\n")
    outcome = probe("node1", "--config", config, *flags)
    outcome.hello()
    assert "@cert-authority" in outcome.errors


def test_an_open_master_connection_is_used(probe, two, files, tmp_path):
    """The configuration has no key that lets in; the connection that is open does."""
    path = tmp_path / "master"
    config = tmp_path / "config"
    text = f"User root\nUserKnownHostsFile {files['known_as']}\nControlPath {path}\n"
    config.write_text(text + f"IdentityFile {files['key']}\n")
    master = subprocess.Popen(["ssh", "-F", config, "-M", "-N", "-o", "BatchMode=yes", "node1"])
    try:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline and master.poll() is None, "no master connection"
            time.sleep(0.01)
        config.write_text(text + "IdentityFile none\nIdentityAgent none\n")
        outcome = probe("node1", "--config", config)
        outcome.hello()
        assert f"controlpath {path}" in outcome.errors
    finally:
        master.kill()
        master.wait()
    # The socket that a killed master has left is not one.
    config.write_text(text + f"IdentityFile {files['key']}\nControlMaster auto\n")
    outcome = probe("node1", "--config", config)
    outcome.hello()
    assert "the ssh program" not in outcome.errors and subprocess.run(["pgrep", "-f", str(path)]).returncode != 0
