# SPDX-License-Identifier: Apache-2.0
"""The packages with every Python that this machine has (on PATH, or installed by pyenv): nothing is
compiled against one, so all since 3.7 will do; an older one gets an error."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from support import job

OLDEST = (3, 7)
PROGRAM = """
import hora, hora.elastic, hora.runner, horovod, horovod.common.util, horovod.data, horovod.runner
hora.init()
assert hora.allgather_object({"rank": hora.rank()}) == [{"rank": r} for r in range(hora.size())]
assert hora.broadcast_object("from 1" if hora.rank() == 1 else None, 1) == "from 1"
hora.barrier()
hora.shutdown()
print("all is well", flush=True)
"""


def interpreters():
    """{(3, 8): path}, one of each minor release."""
    found = {sys.version_info[:2]: sys.executable}
    for path in sorted((pathlib.Path.home() / ".pyenv" / "versions").glob("3.*/bin/python")):
        numbers = re.match(r"3\.(\d+)", path.parents[1].name)
        if numbers:
            found.setdefault((3, int(numbers[1])), str(path))
    for minor in range(6, 30):
        path = shutil.which(f"python3.{minor}")
        # A name on PATH may be a stand-in for a release that is not chosen.
        if (
            path
            and (3, minor) not in found
            and subprocess.run([path, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0
        ):
            found[(3, minor)] = path
    return found


@pytest.mark.parametrize("release", sorted(interpreters()), ids="{0[0]}.{0[1]}".format)
def test_release(release):
    python = interpreters()[release]
    finished = job.run_command(
        [*job.horarun(2), python, "-c", PROGRAM],
        timeout=60,
        # What is installed for one release is not for another.
        PYTHONPATH=job.PACKAGES,
    )
    if release >= OLDEST:
        assert finished.code == 0 and finished.out.count("all is well") == 2, str(finished)
    else:
        assert finished.code != 0 and "Python 3.7 or later" in finished.err, str(finished)


OBJECTS = """
import dataclasses, enum, functools, subprocess, sys, typing
from hora import serialization

class Plain:
    def __init__(self, value: int): self.value = value
    def __eq__(self, other): return self.value == other.value

@dataclasses.dataclass
class Data:
    value: int
    more: typing.List[int] = dataclasses.field(default_factory=list)

class Named(typing.NamedTuple):
    value: int

Kind = enum.Enum("Kind", "ONE TWO")

class Slots(Plain):
    __slots__ = ("more", "__own")
    def __init__(self, value: int):
        self.value, self.more, self.__own = value, value + 1, value + 2
    def __eq__(self, other): return (self.value, self.more, self.__own) == (other.value, other.more, other.__own)

class SlotsAlone:
    __slots__ = "value"
    def __init__(self, value: int): self.value = value
    def __eq__(self, other): return self.value == other.value and not hasattr(other, "__dict__")

@functools.lru_cache(maxsize=3)
def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

if sys.version_info >= (3, 8):
    @functools.singledispatch
    def leaves(tree): return [tree]

    @leaves.register(list)
    def _(tree): return [leaf for each in tree for leaf in leaves(each)]

    class Display:
        @functools.singledispatchmethod
        def show(self, value): return "any"
        @show.register(int)
        def _(self, value): return "int"

class Cached:
    if sys.version_info >= (3, 8):
        @functools.cached_property
        def once(self): return fibonacci(3), fibonacci.cache_info().maxsize
    else:
        once = 2, 3
    @functools.lru_cache()
    def often(self): return 5

def make(value: int) -> Plain:
    assert (Cached().once, Cached().often()) == ((2, 3), 5)
    if sys.version_info >= (3, 8):
        assert (leaves([1, [2]]), leaves.__name__) == ([1, 2], "leaves")
        assert (Display().show(""), Display().show(1)) == ("any", "int")
    return Plain(value), Data(value), Named(value), Kind.ONE, Slots(value), SlotsAlone(value)

worker = [sys.executable, "-S", "-c", "import sys; from hora import serialization; "
          "made = serialization.loads(sys.stdin.buffer.read())(3); assert not hasattr(made[-1], '__dict__'); "
          "sys.stdout.buffer.write(serialization.dumps(made))"]
done = subprocess.run(worker, input=serialization.dumps(make), stdout=subprocess.PIPE, check=True)
assert serialization.loads(done.stdout) == make(3)
import cloudpickle
assert "_bundled" in cloudpickle.__file__
print("all is well")
"""


@pytest.mark.parametrize(
    "release", sorted(each for each in interpreters() if each >= OLDEST), ids="{0[0]}.{0[1]}".format
)
def test_objects_of_the_main_script_travel(release, tmp_path):
    """By the bundled cloudpickle: -S keeps one that is installed out of sight."""
    bundle = job.bundle_dir() / "python"
    if not (bundle / "hora" / "_bundled_newer" / "cloudpickle").exists():
        pytest.skip("the bundle was made without a new cloudpickle (scripts/setup)")
    (tmp_path / "program.py").write_text(OBJECTS)
    done = job.run_command([interpreters()[release], "-S", tmp_path / "program.py"], timeout=60, PYTHONPATH=bundle)
    assert done.code == 0 and "all is well" in done.out, str(done)


SEND_A_PATH = """
import argparse, pathlib, sys
from hora import serialization
sent = argparse.Namespace(data=pathlib.Path("/a/b"), pure=pathlib.PureWindowsPath("c:/d"), here=pathlib.Path())
sys.stdout.buffer.write(serialization.dumps(sent))
"""
READ_A_PATH = """
import pathlib, sys
from hora import serialization
read = serialization.loads(sys.stdin.buffer.read())
assert type(read.data) is type(pathlib.Path()) and read.data == pathlib.Path("/a/b"), read
assert read.pure == pathlib.PureWindowsPath("c:/d") and read.here == pathlib.Path(), read
"""


def test_paths_travel_between_releases():
    """Those of Python 3.13 are of the module pathlib._local, which older ones lack."""
    pythons = [path for release, path in sorted(interpreters().items()) if release >= OLDEST]
    environment = job.environment()
    for sender in pythons:
        sent = subprocess.run([sender, "-S", "-c", SEND_A_PATH], stdout=subprocess.PIPE, env=environment, check=True)
        for reader in pythons:
            subprocess.run([reader, "-S", "-c", READ_A_PATH], input=sent.stdout, env=environment, check=True)


def test_the_wheel_says_so_too():
    sys.path.insert(0, str(job.ROOT / "scripts" / "packages" / "wheel"))
    try:
        import hora_wheel
    finally:
        sys.path.pop(0)
    assert "Requires-Python: >=3.7" in hora_wheel._metadata("manylinux_2_28_x86_64")["METADATA"]
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.version_info = (3, 6, 9); import hora"],
        capture_output=True,
        text=True,
        env=job.environment(),
    )
    assert "Python 3.7 or later" in done.stderr, done.stderr
