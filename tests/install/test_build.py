# SPDX-License-Identifier: Apache-2.0
"""scripts/build in a small checkout."""

import json
import pathlib
import shutil
import subprocess

BUILD = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "build"
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(small NONE)
add_custom_target(all_of_it ALL COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/built)
"""
PRESET = {"name": "dev", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}


def build(checkout):
    done = subprocess.run([checkout / "scripts/build"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    assert (checkout / "build/dev/built").exists()
    return done.stderr


def test_a_checkout_that_was_moved(tmp_path):
    checkout = tmp_path / "a checkout"
    (checkout / "scripts").mkdir(parents=True)
    shutil.copy(BUILD, checkout / "scripts")
    (checkout / "CMakeLists.txt").write_text(PROJECT)
    (checkout / "CMakePresets.json").write_text(json.dumps({"version": 6, "configurePresets": [PRESET]}))
    rebuilt = "build: build/dev was made in another folder than this checkout's; building it again"
    assert rebuilt not in build(checkout)
    link = tmp_path / "link"
    link.symlink_to(checkout)
    assert rebuilt not in build(link)
    assert "Configuring done" not in build(checkout)
    moved = checkout.rename(tmp_path / "moved")
    (moved / "build/dev/built").unlink()
    assert rebuilt in build(moved)
    assert rebuilt not in build(moved)
