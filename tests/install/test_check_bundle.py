# SPDX-License-Identifier: Apache-2.0
"""scripts/cmake/check-bundle --floor finds what a C library of the floor lacks, in libraries that are linked with a C
library of made-up versions. CXX names the compiler."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "cmake" / "check-bundle"
VERSIONS = """
GLIBC_2.4 { old_function; };
GLIBC_2.28 { function_of_the_floor; };
GLIBC_2.29 { new_function; } GLIBC_2.28;
GLIBC_2.100 { newest_function; } GLIBC_2.29;
GLIBC_PRIVATE { inner_function; };
GLIBC_ABI_DT_RELR { };
"""
FUNCTIONS = ("old_function", "function_of_the_floor", "new_function", "newest_function", "inner_function")


def link(output, source, *options):
    source_file = output.with_suffix(".c")
    source_file.write_text(source)
    compiler = os.environ.get("CXX", "g++")
    base = [compiler, "-x", "c", "-fPIC", "-shared", "-nostdlib", "-o", output, source_file, "-x", "none"]
    subprocess.run([*base, *options], check=True, timeout=60)
    return output


@pytest.fixture
def share(tmp_path):
    """A build of share/hora that ships nothing yet."""
    folder = tmp_path / "share/hora/machine"
    for part in ("agent", "bundle"):
        (folder / part).mkdir(parents=True)
    manifest = {"version": "1", "parts": {}, "agent_sha256": "", "dial_sha256": "", "least_glibc": ""}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "files.json").write_text("{}")
    return folder


@pytest.fixture
def c_library(tmp_path):
    map_file = tmp_path / "versions"
    map_file.write_text(VERSIONS)
    source = "".join(f"void {name}(void) {{}}\n" for name in FUNCTIONS)
    return link(tmp_path / "libc.so.6", source, f"-Wl,--version-script={map_file}", "-Wl,-soname,libc.so.6")


def found(share, code, *options, env=None):
    command = [sys.executable, CHECK, "--floor", "2.28", *options, share]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    assert done.returncode == code, done
    return done.stderr.replace(f"{share}/agent/", "")


def calls(*names):
    return "".join(f"void {name}(void);\n" for name in names) + (
        "void all(void) { " + " ".join(f"{name}();" for name in names) + " }\n"
    )


def test_symbols_of_the_floor_are_allowed(share, c_library):
    link(share / "agent/a.so", calls("old_function", "function_of_the_floor"), c_library)
    assert found(share, code=0) == ""


def test_symbols_above_the_floor(share, c_library):
    link(share / "agent/a.so", calls("old_function", "new_function", "newest_function"), c_library)
    assert found(share, code=1).splitlines() == [
        "a.so asks for newest_function of GLIBC_2.100; the floor is glibc 2.28",
        "a.so asks for new_function of GLIBC_2.29; the floor is glibc 2.28",
    ]


def test_what_no_release_promises(share, c_library):
    link(share / "agent/a.so", calls("inner_function"), c_library)
    assert found(share, code=1) == "a.so asks for inner_function of GLIBC_PRIVATE; the floor is glibc 2.28\n"


@pytest.mark.parametrize("asks", [True, False])
def test_relative_relocations(share, c_library, asks):
    """They take glibc 2.36. A linker may ask for that by a version that no symbol has, or may forget to."""
    source = calls("old_function") + "static int i; int *const pointers[] = {&i, &i, &i};\n"
    made = link(share / "agent/a.so", source, "-Wl,-z,pack-relative-relocs", *([c_library] if asks else []))
    dynamic = subprocess.run(["readelf", "-dW", made], capture_output=True, text=True, check=True).stdout
    if "(RELR)" not in dynamic:
        pytest.skip("this linker makes no relative relocations (binutils 2.38)")
    if asks:
        expected = "a.so asks for GLIBC_ABI_DT_RELR; the floor is glibc 2.28\n"
    else:
        expected = "a.so has relative relocations (RELR) that glibc 2.28 does not know\n"
    assert found(share, code=1) == expected


def test_libraries_of_the_host(share, c_library, tmp_path):
    other = link(tmp_path / "libother.so.1", "void other(void) {}\n", "-Wl,-soname,libother.so.1")
    link(share / "agent/a.so", calls("old_function", "other"), c_library, other)
    assert found(share, code=1) == "a.so needs libother.so.1\n"


def test_a_launcher_with_libm(share, tmp_path):
    library = link(tmp_path / "libm.so.6", "void sine(void) {}\n", "-Wl,-soname,libm.so.6")
    link(share / "agent/a.so", calls("sine"), library)
    assert found(share, code=0) == ""
    launcher = tmp_path / "bin/horarun"
    launcher.parent.mkdir()
    link(launcher, calls("sine"), library)
    assert found(share, code=1) == f"{launcher} needs libm, which takes each launch a while to load\n"


def test_a_build_for_this_machine_alone_is_not_a_success(share):
    said = "check-bundle: not checked, hosts need the glibc of this machine: no network\n"
    assert found(share, 77, "--unless", "no network", env={"CI": ""}) == said
    assert found(share, 1, "--unless", "no network", env={"CI": "true"}) == said
