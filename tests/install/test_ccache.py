# SPDX-License-Identifier: Apache-2.0
"""The build uses ccache only where it can write its cache."""

import os
import pathlib
import shutil
import subprocess

import pytest

MODULES = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cmake"
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(small C)
list(PREPEND CMAKE_MODULE_PATH {MODULES})
include(HoraCcache)
message(STATUS "launcher: ${{CMAKE_C_COMPILER_LAUNCHER}}.")
"""


def configure(folder, home):
    (folder / "CMakeLists.txt").write_text(PROJECT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CCACHE_", "XDG_"))}
    command = ["cmake", "-S", folder, "-B", folder / "build"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**environment, "HOME": str(home)})
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.skipif(not shutil.which("ccache"), reason="no ccache")
def test_ccache_without_a_home(tmp_path):
    assert f"launcher: {shutil.which('ccache')}." in configure(tmp_path, tmp_path)
    said = configure(tmp_path, "/proc/none")
    assert "-- without ccache: " in said
    assert "launcher: ." in said
