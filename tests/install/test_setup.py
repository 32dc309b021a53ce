# SPDX-License-Identifier: Apache-2.0
"""scripts/setup on machines that are made up: each program that it calls is a few lines of shell."""

import pathlib
import shutil
import subprocess

import pytest

SETUP = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "setup"
REAL = ("sh", "env", "dirname", "sed", "awk", "grep", "tr", "sort", "rm", "tail", "mktemp", "mkdir")
INTERRUPTED = "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the problem."


class Machine:
    """A bare Debian with an ordinary user. Its programs note what they are called with, and install nothing."""

    def __init__(self, folder):
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.checkout = folder / "a checkout"
        (self.checkout / "scripts/cmake").mkdir(parents=True)
        shutil.copy(SETUP, self.checkout / "scripts")
        self.calls = folder / "calls"
        for name in REAL:
            (self.programs / name).symlink_to(shutil.which(name))
        for name in ("sleep", "dpkg-query", "dpkg", "apt-get"):
            self.has(name, "exit 0")
        self.has("pip", self.pip_in(self.checkout / ".venv"))
        self.has("sudo", '[ "$1" != -n ] || shift\n[ "$1" != env ] || exec "$@"')
        self.has("id", "echo 1000")
        self.has("uname", "echo x86_64")
        self.has("apt-cache", f'"{self.checkout}/scripts/setup" --list')
        self.has("cmake", "echo cmake version 3.31.6")
        self.has("python3", f'mkdir -p "$3/bin"\n[ -z "$4" -a -e "$3/bin/pip" ] || cp "{self.programs}/pip" "$3/bin"')
        (self.programs / "cp").symlink_to(shutil.which("cp"))
        self.write(self.checkout / "scripts/cmake/sysroot", "exit 0")
        (self.checkout / "build/cloudpickle").mkdir(parents=True)

    @staticmethod
    def write(path, body):
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def has(self, name, body):
        self.write(self.programs / name, f'echo "{name} $*" >>"{self.calls}"\n{body}')

    @staticmethod
    def pip_in(venv):
        return f'[ "$1" != --version ] || echo "pip 23.0.1 from {venv}/lib/python3.11/site-packages/pip (python 3.11)"'

    def setup(self, code=0):
        environment = {"PATH": str(self.programs), "TMPDIR": str(self.checkout)}
        done = subprocess.run([self.checkout / "scripts/setup"], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, env=environment)  # fmt: skip
        assert done.returncode == code, done
        assert not list(self.checkout.glob("tmp.*"))
        return done.stderr

    def called(self, start):
        return [line for line in self.calls.read_text().splitlines() if line.startswith(start)]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_packages_are_installed(machine):
    said = machine.setup()
    assert "setup: installing: build-essential ninja-build" in said
    assert " catch2 " in said  # the release preset asks for it, though scripts/run builds no tests
    assert len(machine.called("apt-get")) == 2  # update and install
    assert not machine.called("python3")


def test_an_old_cmake_is_not_enough(machine):
    machine.has("cmake", "echo cmake version 3.22.1")
    assert "CMake is older than 3.25: installing a newer one into .venv" in machine.setup()
    assert machine.called("pip install") == ["pip install -q cmake>=3.25,<4"]


def test_a_cloudpickle_for_new_pythons(machine):
    folder = machine.checkout / "build/cloudpickle"
    folder.rmdir()
    assert "installing cloudpickle" in machine.setup()
    assert machine.called("pip install") == [f"pip install -q --target {folder} --no-deps cloudpickle>=3.1.2,<4"]


def test_without_an_index_of_packages(machine):
    (machine.checkout / "build/cloudpickle").rmdir()
    machine.has("pip", f'{machine.pip_in(machine.checkout / ".venv")}\n[ "$1" != install ]')
    assert "left out: cloudpickle for Python 3.14 and later" in machine.setup()


@pytest.mark.parametrize("original_is_there", (False, True))
def test_a_checkout_that_was_moved_or_copied_gets_its_own_venv(machine, original_is_there):
    machine.has("cmake", "echo cmake version 3.22.1")
    original = machine.checkout.with_name("original") / ".venv"
    original.mkdir(parents=True)
    pip = machine.checkout / ".venv/bin/pip"
    pip.parent.mkdir(parents=True)
    calls = f'echo "the pip of the original $*" >>"{machine.calls}"\n'
    machine.write(pip, calls + machine.pip_in(original) if original_is_there else "exit 127")
    machine.setup()
    assert machine.called("pip install") == ["pip install -q cmake>=3.25,<4"]
    assert not machine.called("the pip of the original install")
    machine.setup()
    assert len(machine.called("python3")) == 1  # made again once


def test_a_cmake_that_is_missing_is_installed(machine):
    (machine.programs / "cmake").unlink()
    machine.setup()
    assert machine.called("pip install") == ["pip install -q cmake>=3.25,<4"]


def test_sudo_that_refuses_is_asked_once(machine):
    machine.has("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    said = machine.setup(1)
    assert "setup: sudo is used to install packages, and asks for your password\nsudo: a password is required\n" in said
    assert "setup: without sudo, have an administrator install: build-essential ninja-build" in said
    assert not machine.called("apt-get")


def test_the_end_of_a_long_failure_is_shown(machine):
    failing = "for line in 1 2 3 4 5 6 7 8 9; do echo E: failed $line; done >&2; exit 100"
    machine.has("apt-get", f'case "$*" in *install*) {failing} ;; esac')
    said = machine.setup(1)
    assert said.endswith("E: failed 9\nsetup: apt-get install failed three times; the end of its output is above\n")
    assert "E: failed 4" not in said


def test_an_interrupted_installation_is_finished(machine):
    repaired = machine.checkout / "repaired"
    machine.has("dpkg", f'echo >"{repaired}"')
    fails = f'[ -e "{repaired}" ] || {{ echo "{INTERRUPTED}" >&2; exit 100; }}'
    machine.has("apt-get", f'case "$*" in *install*) {fails} ;; esac')
    assert "setup: finishing an installation that was interrupted (dpkg --configure -a)" in machine.setup()
    assert machine.called("dpkg ") == ["dpkg --configure -a"]
    assert len([call for call in machine.called("apt-get") if " install " in call]) == 2
    assert not machine.called("sleep")
