# SPDX-License-Identifier: Apache-2.0
"""Root file systems of other systems to install into (tests/support/roots/make): a copy for each test, made by an
overlay, with no network, no compiler and nothing of this machine but the folder of packages."""

import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "roots"))
import emulation

ROOTS = os.environ.get("HORA_ROOTS", "")
PRESENT = [name for name in ("bullseye", "bookworm", "trixie", "sid") if os.path.isdir(f"{ROOTS}/{name}-plain")]
# What a system writes down about itself, whatever is installed and removed.
BOOKKEEPING = ("tmp/", "run/", "var/log/", "var/cache/", "var/lib/dpkg/", "var/lib/rpm", "etc/ld.so.cache")

ENTER = """
mount -t overlay -o lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work overlay {folder}/root
cd {folder}/root
mount -t proc proc proc; mount --rbind /dev dev; mount -t tmpfs none dev/shm; mount -t tmpfs none tmp
mount --bind {packages} packages
ip link set lo up
"""
# A user namespace may not rename in an overlay, so it begins when all is mounted.
EMULATED = f"{emulation.EMULATED} {emulation.qemu(ROOTS)}"
CHROOT = """
exec {within} chroot . env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 {variables} \\
  sh -ec "$0"
"""


class Root:
    """`name`: of a plain root, or a folder. `emulated`: its programs are for ARM64."""

    def __init__(self, name, folder, packages, emulated=False):
        self.folder, self.packages = pathlib.Path(folder), packages
        self.lower = name if os.path.isabs(name) else f"{ROOTS}/{name}-plain"
        self.within = EMULATED if emulated else ""
        # Its Python is not set up, either: it would write what it compiles. And all takes many times as long.
        self.variables = "PYTHONDONTWRITEBYTECODE=1 HOROVOD_START_TIMEOUT=120" if emulated else ""
        self.timeout_s = 600 if emulated else 300
        for part in ("upper", "upper/packages", "work", "root"):
            (self.folder / part).mkdir()

    def run(self, script, outside="", code=0):
        """The output of a shell's lines in the root. `outside`: lines that run before, with this machine's programs."""
        enter = ENTER.format(lower=self.lower, folder=self.folder, packages=self.packages) + outside + "\n"
        enter += CHROOT.format(within=self.within, variables=self.variables)
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec", enter, script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.timeout_s,
        )
        assert done.returncode == code, done.stdout[-6000:]
        return done.stdout

    def found(self):
        """The files and folders that the system which it is a copy of has not, or has otherwise."""
        upper = self.folder / "upper"
        return {
            str(path.relative_to(upper))
            for path in upper.rglob("*")
            if not str(path.relative_to(upper)).startswith(BOOKKEEPING)
            # A folder of the system has to be here for what is in it.
            and not (path.is_dir() and os.path.isdir(f"{self.lower}/{path.relative_to(upper)}"))
        }


def reason_against_arm64():
    """The same for programs for ARM64."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "roots take root and unshare"
    return emulation.reason_against(ROOTS)


def reason_against():
    """Why there can be no such root here; empty: there can."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "roots take root and unshare"
    return "" if PRESENT else "HORA_ROOTS names no folder with a root such as bullseye-plain (tests/support/roots/make)"
