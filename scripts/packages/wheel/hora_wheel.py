# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: `pip install .` and `pip wheel .` call the functions of this module (PEP 517).

The wheel holds the launcher and what the launcher ships to hosts: agent, runtime, packages. The environment imports the
packages from there too, by a line in hora.pth, so no file is in the wheel twice. Nothing in it is compiled against
Python, so one wheel serves every Python 3.

    <environment>/bin/horarun         the launcher
    <environment>/share/hora/MACHINE/ agent, bundle and manifest, next to it as in any prefix
    <environment>/share/              also the manual page and the completions of three shells
    site-packages/hora.pth            names <environment>/share/hora/MACHINE/bundle/python

The wheel's tag is manylinux_2_28 where scripts/cmake/check-bundle says that all of it runs there, which takes the
files of scripts/cmake/sysroot; elsewhere it is linux, and pip takes the wheel on the machine that made it.

HORA_WHEEL_BUILD_DIR names the build folder (default: build/wheel), HORA_WHEEL_CMAKE_ARGS adds arguments for CMake,
HORA_WHEEL_MACHINE makes a wheel for another processor (aarch64). The same input gives the same bytes.
"""

import base64
import hashlib
import os
import pathlib
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Where pip puts packages is three folders below the environment: lib/python3.X/site-packages.
PACKAGES_FOLDER = "../../../share/hora/{machine}/bundle/python"
# A wheel has no links. pip puts the environment's python into the first line.
SECOND_NAME = """#!python
import os
import sys

os.execv(os.path.join(os.path.dirname(os.path.abspath(__file__)), "horarun"), sys.argv)
"""
# Hora's own, and those of what is linked into its programs (scripts/cmake/third-party-notices).
LICENCES = (
    "Apache-2.0 AND LGPL-2.1-or-later AND BSD-3-Clause AND BSD-2-Clause AND MIT AND ISC AND Zlib AND BSL-1.0"
    " AND GPL-3.0-or-later WITH GCC-exception-3.1"
)
GLIBC_FLOOR = "2.28"  # as in scripts/cmake/HoraSysroot.cmake
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory, f"hora-{_version()}.dist-info")
    folder.mkdir()
    for name, text in _metadata(f"linux_{_machine()}").items():
        (folder / name).write_text(text)
    return folder.name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("Hora is built from its repository; there is no source archive")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = _version()
    with tempfile.TemporaryDirectory(prefix="hora-wheel-") as staging:
        _install(build_product(), staging)
        platform_tag = _platform_tag(pathlib.Path(staging))
        name = f"hora-{version}-py3-none-{platform_tag}.whl"
        with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as archive:
            _fill(_Wheel(archive), pathlib.Path(staging), version, platform_tag)
    return name


def _version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(hora VERSION ([\d.]+)", text).group(1)


def _machine():
    return os.environ.get("HORA_WHEEL_MACHINE") or platform.machine()


def _platform_tag(prefix):
    """What is in the files decides, not what was asked for."""
    with open(prefix / "bin" / "horarun", "rb") as file:
        machine = MACHINES.get(int.from_bytes(file.read(20)[18:], "little"))
    if machine != _machine():
        raise RuntimeError(f"horarun is for {machine}, the wheel is to be for {_machine()}")
    share = prefix / "share" / "hora" / machine
    check = [sys.executable, ROOT / "scripts" / "cmake" / "check-bundle", "--floor", GLIBC_FLOOR, share]
    if subprocess.run(check).returncode == 0:
        return f"manylinux_{GLIBC_FLOOR.replace('.', '_')}_{machine}"
    print(f"wheel: not for every Linux with glibc {GLIBC_FLOOR}, see above: tagged linux", file=sys.stderr)
    return f"linux_{machine}"


def _metadata(platform_tag):
    return {
        "METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                "Name: hora",
                f"Version: {_version()}",
                "Summary: Distributed training without the install",
                f"License: {LICENCES}",
                "License-File: LICENSE",
                "License-File: THIRD-PARTY-NOTICES.txt",
                "Requires-Python: >=3.7",
                "Description-Content-Type: text/markdown",
                "",
                (ROOT / "README.md").read_text(),
            ]
        ),
        "WHEEL": "\n".join(
            [
                "Wheel-Version: 1.0",
                "Generator: hora_wheel",
                "Root-Is-Purelib: false",
                f"Tag: py3-none-{platform_tag}",
                "",
            ]
        ),
        "top_level.txt": "hora\nhorovod\nsparkdl\n",
    }


def build_product():
    """The product in release mode: returns the build folder."""
    cmake = _cmake()
    folder = pathlib.Path(os.environ.get("HORA_WHEEL_BUILD_DIR", ROOT / "build" / "wheel"))
    # pip hides the installed packages from what it runs; the build looks for some of them.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    # Without the files that it fetches the build works, too, and says so.
    subprocess.run([ROOT / "scripts" / "cmake" / "sysroot"], check=False, env=env)

    def build(folder, preset, target, *arguments):
        # The same code as any release build, so that a compiler cache has most of it.
        configure = [cmake, "--preset", preset, "-S", ROOT, "-B", folder, "-DHORA_BUILD_TESTS=OFF", *arguments]
        if shutil.which("ninja") is None:
            configure += ["-G", "Unix Makefiles"]
        subprocess.run(configure, check=True, env=env)
        subprocess.run([cmake, "--build", folder, "--parallel", "--target", target], check=True, env=env)

    arguments = shlex.split(os.environ.get("HORA_WHEEL_CMAKE_ARGS", ""))
    if _machine() == platform.machine():
        build(folder, "release", "product", *arguments)
    else:
        # The manual page comes from a program of the build, which must run here.
        build(folder, "release", "print_manual", *arguments)
        subprocess.run([ROOT / "scripts" / "cmake" / "sysroot", "--arch", _machine()], check=True, env=env)
        native, folder = folder, folder.with_name(f"{folder.name}-{_machine()}")
        manual = f"-DHORA_PRINT_MANUAL={native}/bin/print_manual"
        build(folder, f"release-{_machine()}", "product", manual, *arguments)
    return folder


def _cmake():
    cmake = shutil.which("cmake")
    if cmake is None:
        raise RuntimeError("cmake was not found: run scripts/setup first")
    return cmake


def _install(folder, prefix):
    for component in ("hora", "hosts"):
        install = [_cmake(), "--install", folder, "--prefix", prefix, "--component", component, "--strip"]
        subprocess.run(install, check=True)


class _Wheel:
    """A zip archive that remembers what RECORD must say."""

    def __init__(self, archive):
        self.archive = archive
        self.records = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (stat.S_IFREG | mode) << 16
        self.archive.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}")

    def add_tree(self, folder, prefix):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
                self.add(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes(), mode)

    def finish(self, info_folder):
        name = f"{info_folder}/RECORD"
        self.add(name, ("\n".join(self.records) + f"\n{name},,\n").encode())


def _fill(wheel, staging, version, platform_tag):
    wheel.add("hora.pth", (PACKAGES_FOLDER.format(machine=_machine()) + "\n").encode())
    data = f"hora-{version}.data"
    for program in sorted((staging / "bin").iterdir()):
        content = SECOND_NAME.encode() if program.is_symlink() else program.read_bytes()
        wheel.add(f"{data}/scripts/{program.name}", content, 0o755)
    notices = staging / "share" / "doc" / "hora" / "THIRD-PARTY-NOTICES.txt"
    info = f"hora-{version}.dist-info"
    wheel.add(f"{info}/{notices.name}", notices.read_bytes())
    wheel.add(f"{info}/sboms/hora.cdx.json", (notices.parent / "sbom.cdx.json").read_bytes())
    shutil.rmtree(staging / "share" / "doc")  # pip's place for licences is the folder above
    wheel.add_tree(staging / "share", f"{data}/data/share")
    for name, text in _metadata(platform_tag).items():
        wheel.add(f"{info}/{name}", text.encode())
    wheel.add(f"{info}/LICENSE", (ROOT / "LICENSE").read_bytes())
    wheel.finish(info)
