# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import pytest

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..")]
import probe as probe_module  # noqa: E402

import jobs  # noqa: E402
from extra_sshd import ExtraSshd  # noqa: E402

BUILD = os.environ.get("HORA_BUILD") or os.path.join(os.path.dirname(__file__), "..", "..", "..", "build", "release")


@pytest.fixture(scope="session")
def probe():
    build = os.path.abspath(BUILD)
    if not os.access(os.path.join(build, "bin", "hora-transport-probe"), os.X_OK):
        pytest.fail(f"no hora-transport-probe in {build}", pytrace=False)
    return probe_module.Probe(build)


class Mounts:
    """What a test changes in a host's file system, undone at its end."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.undo = []

    def mount(self, k, target, *options):
        self.hosts.execute(k, "mount", *options, target)
        self.undo.append((k, ["umount", "-l", target]))

    def tmpfs(self, k, target, options):
        self.mount(k, target, "-t", "tmpfs", "-o", options, "tmpfs")

    def file(self, k, target, text):
        """`target` reads as `text` on host k."""
        source = f"/run/file{len(self.undo)}"
        self.hosts.execute(k, "sh", "-c", f"cat >{source}; [ -e {target} ] || : >{target}", input=text)
        self.mount(k, target, "--bind", source)

    def clear(self):
        for k, command in reversed(self.undo):
            self.hosts.execute(k, *command, check=False)


@pytest.fixture
def two(hosts):
    """Two hosts without a cache of Hora's."""
    up = hosts(2)
    for k in (1, 2):
        up.execute(k, "sh", "-c", "rm -rf /root/.cache /tmp/hora-* /dev/shm/hora-* /root/.bashrc")
    return up


@pytest.fixture
def mounts(two):
    made = Mounts(two)
    yield made
    made.clear()


@pytest.fixture
def sshd(two):
    """sshd(2222, MaxStartups=2) on host 1: the flags that lead there."""
    extra = ExtraSshd(two, 1)

    def start(port, environment=(), log="", **settings):
        lines = (f"{name} {value}" for name, value in settings.items())
        extra.start(port, *lines, environment=environment, log=log)
        return ["--port", port]

    yield start
    extra.stop()


@pytest.fixture
def keys(hosts):
    """Where the test hosts' key and known_hosts are on this machine."""
    state = os.environ.get("HORA_HOSTS_STATE", "/run/hora-hosts")

    class Keys:
        key = f"{state}/key"
        known_hosts = f"{state}/known_hosts"

    return Keys


@pytest.fixture
def agent(tmp_path):
    """agent(key, ...): an ssh-agent with these keys, in this order; the environment that leads there."""
    started = []

    def start(*keys):
        path = str(tmp_path / f"agent{len(started)}")
        environment = {**os.environ, "SSH_AUTH_SOCK": path}
        started.append(subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL))
        no_agent = 2  # ssh-add's exit code
        jobs.wait_until(
            lambda: subprocess.run(["ssh-add", "-l"], env=environment, capture_output=True).returncode != no_agent,
            "an ssh-agent",
        )
        for key in keys:
            subprocess.run(["ssh-add", "-q", key], env=environment, check=True, capture_output=True)
        return {"SSH_AUTH_SOCK": path}

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def config(tmp_path, keys):
    """config("Port 22", ...) writes an ssh config for all hosts and gives its path; a keyword that is
    not named has what makes the connection work."""

    def write(*lines, identity=True, known=True):
        text = ["Host *", "User root", *lines]
        if identity:
            text += [f"IdentityFile {keys.key}", "IdentitiesOnly yes"]
        if known:
            text += [f"UserKnownHostsFile {keys.known_hosts}"]
        path = tmp_path / "config"
        path.write_text("\n".join(text) + "\n")
        return str(path)

    return write
