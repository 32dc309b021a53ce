# SPDX-License-Identifier: Apache-2.0
"""Login shells of the remote user: which ones work, and what they may print and do."""

import shutil

import pytest

PASSWD = "/etc/passwd"


def set_login_shell(mounts, k, shell):
    with open(PASSWD) as file:
        lines = [
            ":".join([*line.rstrip("\n").split(":")[:6], shell]) if line.startswith("root:") else line.rstrip("\n")
            for line in file
        ]
    mounts.file(k, PASSWD, "\n".join(lines) + "\n")


SHELLS = ["sh", "dash", "bash", "bsd-csh", "tcsh", "fish", "zsh", "ksh", "mksh", "yash", "posh"]


@pytest.mark.parametrize("shell", SHELLS)
def test_login_shell(probe, two, mounts, shell):
    path = shutil.which(shell)
    if not path:
        pytest.skip(f"{shell} is not installed")
    set_login_shell(mounts, 1, path)
    first = probe("node1", arguments=["--echo", "it's a \\ ! $HOME test"])
    first.hello()
    assert first.shipped()
    second = probe("node1")
    second.hello()
    assert not second.shipped()


def test_busybox_as_sh(probe, two, mounts, sshd):
    """A host whose /bin/sh, head, gzip, mv... are busybox."""
    path = shutil.which("busybox")
    if not path:
        pytest.skip("busybox is not installed")
    two.execute(1, "sh", "-c", f"mkdir -p /run/bb && {path} --install -s /run/bb && rm -f /run/bb/sshd")
    mounts.mount(1, "/bin/dash", "--bind", path)  # /bin/sh leads there
    set_login_shell(mounts, 1, "/run/bb/ash")
    mounts.file(1, "/etc/environment", "")
    two.execute(1, "sh", "-c", "mkdir -p /root/.ssh; echo PATH=/run/bb > /root/.ssh/environment")
    flags = [*sshd(2223, PermitUserEnvironment="yes"), "--accept-new"]
    try:
        first = probe("node1", *flags)
        first.hello()
        assert first.shipped()
        second = probe("node1", *flags)
        second.hello()
        assert not second.shipped()
    finally:
        two.execute(1, "rm", "-rf", "/root/.ssh")


@pytest.mark.parametrize(
    "noise",
    [
        "echo Welcome to the machine; echo and mind the step >&2",
        "printf 'no line feed'",
        "head -c 300000 /dev/zero | tr '\\0' x; echo",
        "head -c 100000 /dev/urandom",
        "printf 'HORA-0 need gz x /y\\nHORA- fail; nothing\\n\\001HORA-AGENT'",
        "set -x; set -v",
        "cd /tmp; umask 000; PATH=/bin:/usr/bin; IFS=x; set -u; set -f",
        "trap 'echo bye' EXIT",
    ],
)
def test_a_talkative_login_script(probe, two, mounts, noise):
    mounts.file(1, "/root/.bashrc", noise + "\n")
    first = probe("node1")
    first.hello()
    assert first.shipped()
    probe("node1").hello()


def test_a_login_script_that_empties_the_path(probe, two, mounts):
    mounts.file(1, "/root/.bashrc", "export PATH=\n")
    first = probe("node1")
    first.hello()
    assert first.shipped()


def test_a_login_script_that_reads_its_input(probe, two, mounts):
    """Nothing is sent before it is asked for, so there is nothing for it to swallow."""
    mounts.file(1, "/root/.bashrc", "read -t 0.3 -r line\n")
    probe("node1").hello()
    probe("node1").hello()


@pytest.mark.parametrize(
    "script,words",
    [
        ("echo maintenance until noon; exit 255", "maintenance until noon"),
        ("echo go away >&2; exit 1", "go away"),
        ("kill -9 $$", "signal KILL"),
    ],
)
def test_a_login_script_that_gives_up(probe, two, mounts, script, words):
    mounts.file(1, "/root/.bashrc", script + "\n")
    outcome = probe(["node1", "node2"])
    outcome.hello("node2")
    assert words in outcome.failure("E_REMOTE_SHELL")


def test_no_login_shell(probe, two, mounts):
    set_login_shell(mounts, 1, shutil.which("nologin") or "/usr/sbin/nologin")
    message = probe("node1").failure("E_NO_SHELL")
    assert "not available" in message and "status 1" in message


def test_false_as_the_login_shell(probe, two, mounts):
    set_login_shell(mounts, 1, shutil.which("false"))
    assert "status 1" in probe("node1").failure("E_NO_SHELL")


def test_a_login_script_that_waits(probe, two, mounts):
    mounts.file(1, "/root/.bashrc", "sleep 1000\n")
    outcome = probe(["node1", "node2"], "--deadline-ms", 8000)
    outcome.hello("node2")
    assert "in time" in outcome.failure("E_SHELL_TIMEOUT")


def test_a_forced_command(probe, two, sshd):
    flags = [*sshd(2224, ForceCommand="echo only this"), "--accept-new"]
    assert "only this" in probe("node1", *flags).failure("E_REMOTE_SHELL")


def test_an_agent_that_gives_up(probe, two):
    message = probe("node1", arguments=["--exit", "7"]).failure("E_AGENT")
    assert "status 7" in message and "the double gives up" in message
