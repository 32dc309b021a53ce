# SPDX-License-Identifier: Apache-2.0
"""Fixtures: `horarun` (the program), `hosts(n, ...)` (test hosts), `shared` (a folder all hosts see)."""

import collections
import importlib.machinery
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import jobs

# A shell's background jobs, and their children, ignore these; what is started here must get them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
HOSTS_TOOL = os.path.join(REPOSITORY, "tests", "support", "hosts")
BUILD = os.environ.get("HORA_BUILD", os.path.join(REPOSITORY, "build", "release"))


def _load_hosts_tool():
    loader = importlib.machinery.SourceFileLoader("hosts_tool", HOSTS_TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("hosts_tool", loader))
    loader.exec_module(module)
    return module


hosts_tool = _load_hosts_tool()
# The files of a shared queue that this run has taken, and those that it leaves to others.
_taken, _left = set(), set()


@pytest.fixture
def own_world():
    """For tests that mount file systems: no other process may see those."""
    if not hosts_tool.in_world():
        pytest.skip("needs root and a world of its own (tests/integration/in-a-world)")


@pytest.fixture(scope="session")
def build():
    if not os.access(os.path.join(BUILD, "bin", "horarun"), os.X_OK):
        pytest.fail(f"no horarun in {BUILD}: run scripts/build release, or set HORA_BUILD", pytrace=False)
    return BUILD


@pytest.fixture(scope="session")
def shared():
    """A folder with the same path and content on every host, as a shared file system has it. Holds
    the programs of tests/integration/programs."""
    folder = tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    shutil.copytree(os.path.join(os.path.dirname(__file__), "programs"), folder, dirs_exist_ok=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def horarun(build, shared):
    runner = jobs.Horarun(build, shared)
    yield runner
    left = runner.clean_up()
    assert not left, f"processes that outlived their job: {left}"


class TestHosts:
    """The hosts that are up. Names count from 1."""

    __test__ = False

    def __init__(self, hosts):
        self._hosts = hosts
        self.names = hosts.names()

    def spec(self, slots):
        """A -H list with that many slots each."""
        return ",".join(f"{name}:{slots}" for name in self.names)

    def address(self, k, net=0):
        return self._hosts.address(k, net)

    def act(self, command, *arguments):
        """kill, crash, start, freeze, thaw, cut, heal, part, join, netem."""
        options = hosts_tool.parse([command, *map(str, arguments)])
        hosts_tool.act(self._hosts, options)

    def execute(self, k, *command, check=True, **options):
        """Runs a command on host k without ssh; answers its stdout."""
        pid = str(self._hosts.init_pid(k))
        done = subprocess.run(
            ["nsenter", "-t", pid, "-m", "-u", "-i", "-n", "-p", "--wd=/", "--", *command],
            capture_output=True,
            text=True,
            timeout=60,
            **options,
        )
        if check:
            assert done.returncode == 0, f"{command} on host {k}: {done.returncode} {done.stderr}"
        return done.stdout

    def processes(self, k, pattern):
        """The pids, as seen from head, of host k's processes whose command line holds `pattern`."""
        namespace = os.stat(f"/proc/{self._hosts.init_pid(k)}/ns/pid").st_ino
        found = []
        for pid in hosts_tool.processes_in("pid", namespace):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if pattern.encode() in file.read() and hosts_tool.is_alive(hosts_tool.identity(pid)):
                        found.append(pid)
            except OSError:
                pass
        return found

    def is_up(self, k):
        """Whether it runs; it may be frozen or cut off."""
        return hosts_tool.is_alive(self._hosts.record["init"].get(str(k)))

    @property
    def faulty(self):
        record = self._hosts.record
        return any(record[fault] for fault in ("cut", "crashed", "frozen", "parted", "delayed")) or not all(
            self.is_up(k) for k in self._hosts.numbers()
        )


class HostFactory:
    """Keeps one set of hosts up from test to test as long as they ask for the same."""

    def __init__(self):
        self.settings = hosts_tool.Settings()
        self.wanted = None
        self.current = None

    def __call__(self, count, **options):
        wanted = (count, tuple(sorted((k, str(v)) for k, v in options.items())))
        if self.current and (wanted != self.wanted or self.current.faulty):
            self.down()
        if not self.current:
            hide = [REPOSITORY, *([] if os.path.realpath(BUILD).startswith(REPOSITORY) else [os.path.realpath(BUILD)])]
            flags = ["up", str(count)]
            for folder in hide:
                flags += ["--hide", folder]
            for name, value in options.items():
                flag = "--" + name.replace("_", "-")
                if value is True:
                    flags.append(flag)
                else:
                    for one in value if isinstance(value, (list, tuple)) else [value]:
                        flags += [flag, str(one)]
            os.makedirs(self.settings.state, exist_ok=True)
            hosts, _ = hosts_tool.up(self.settings, hosts_tool.parse(flags))
            self.current, self.wanted = TestHosts(hosts), wanted
        return self.current

    def down(self):
        hosts_tool.down(self.settings)
        self.current = None


@pytest.fixture(scope="session")
def _host_factory():
    factory = HostFactory()
    yield factory
    if factory.current:
        factory.down()


@pytest.fixture
def hosts(request):
    """hosts(4, nets=2, decoy=True): brings hosts up, without this repository and its build on them."""
    if not hosts_tool.in_world():
        pytest.skip("no test hosts here: run through scripts/test, as root")
    return request.getfixturevalue("_host_factory")


def pytest_addoption(parser):
    parser.addoption("--queue", metavar="FOLDER", help="several runs with one FOLDER share the tests, file by file")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "hosts" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.hosts)
    # Whole files, because tests of a file share hosts; those that take longest first.
    weights = collections.Counter()
    for item in items:
        weights[item.path] += 20 if item.get_closest_marker("slow") else 1
    if config.getoption("--queue"):
        items.sort(key=lambda item: (-weights[item.path], item.path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """True, and the test is left to another run, if that has taken the file from the queue."""
    queue = item.config.getoption("--queue")
    if not queue or item.path in _taken:
        return None
    if item.path not in _left:
        try:
            os.close(os.open(os.path.join(queue, str(item.path).replace("/", "%")), os.O_CREAT | os.O_EXCL))
            _taken.add(item.path)
            return None
        except FileExistsError:
            _left.add(item.path)
    return True
