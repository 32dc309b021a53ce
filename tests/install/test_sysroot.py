# SPDX-License-Identifier: Apache-2.0
"""scripts/cmake/sysroot says in a few lines why it fetched nothing."""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cmake"
# As apt-get: an archive out of reach is a warning, unless an option says otherwise.
APT_GET = """#!/bin/sh
. /etc/os-release
case "$*" in
  indextargets*) echo "$VERSION_CODENAME http://archive.invalid main" ;;
  *update) for line in 1 2 3 4 5 6 7 8 9; do echo "E: failed $line" >&2; done
           ! grep -q 'Error-Mode "any"' "$APT_CONFIG" || exit 100 ;;
  *) echo "went on to $*"; exit 100 ;;
esac
"""


@pytest.mark.skipif(not os.path.exists("/usr/lib/apt/apt-helper"), reason="no apt")
def test_without_a_network(tmp_path):
    (tmp_path / "scripts/cmake").mkdir(parents=True)
    for name in ("sysroot", "own-apt.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts/cmake")
    apt_get = tmp_path / "apt-get"
    apt_get.write_text(APT_GET)
    apt_get.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("HORA_SYSROOT_MIRROR", None)
    command = [tmp_path / "scripts/cmake/sysroot"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1
    said = done.stderr.splitlines()[1:]
    assert said[:5] == [f"E: failed {line}" for line in range(5, 10)]
    assert said[5:] == [
        "sysroot: apt-get failed; the end of its output is above",
        "sysroot: left out: this build will need the glibc of this machine on every host",
    ]
    assert list((tmp_path / "build/sysroot").iterdir()) == []
