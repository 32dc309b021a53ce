# SPDX-License-Identifier: Apache-2.0
"""What people install, as they install it: the packages that scripts/package has made (HORA_PACKAGES)."""

import csv
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import zipfile

import pytest

import roots
from roots import Root

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = pathlib.Path(os.environ.get("HORA_PACKAGES", ""))
VERSION = re.search(r"project\(hora VERSION ([\d.]+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]
MACHINE = os.uname().machine
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}  # its names for processors
OTHERS = [machine for machine in ("aarch64",) if machine != MACHINE]
ENDS = [roots.PRESENT[0], roots.PRESENT[-1]] if roots.PRESENT else []
WHERE = {
    "bash": "share/bash-completion/completions/horarun",
    "zsh": "share/zsh/site-functions/_horarun",
    "fish": "share/fish/vendor_completions.d/horarun.fish",
}
DEB_COMPLETIONS = {**WHERE, "zsh": "share/zsh/vendor-completions/_horarun"}

TRAIN = 'import hora; hora.init(); print(len(hora.allgather_object(hora.rank())), "of", hora.size())'
FUNCTION = "import hora; print(hora.run(lambda: (hora.init(), hora.rank())[1], np=2))"

WHY_NO_ARM64 = roots.reason_against_arm64()
needs_arm64 = pytest.mark.skipif(bool(WHY_NO_ARM64), reason=WHY_NO_ARM64 or "-")
needs_a_root = pytest.mark.skipif(bool(roots.reason_against()), reason=roots.reason_against() or "-")


def package(pattern):
    found = sorted(PACKAGES.glob(pattern)) if os.environ.get("HORA_PACKAGES") else []
    if not found:
        pytest.skip(f"HORA_PACKAGES has no {pattern} (scripts/package)")
    assert len(found) == 1, found
    return found[0]


def tool(name):
    found = shutil.which(name, path=f"{os.environ['PATH']}:{REPOSITORY}/.venv/bin")
    if found is None:
        pytest.skip(f"no {name} (scripts/setup --dev)")
    return found


def output_of(*command, code=0, env=None):
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, env=env)
    assert done.returncode == code, done.stdout[-6000:]
    return done.stdout


@pytest.fixture
def root(tmp_path):
    return lambda name: Root(name, tmp_path, PACKAGES)


# --- the wheel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [MACHINE, *OTHERS])
def test_auditwheel_agrees_with_the_tag(machine):
    wheel = package(f"*_{machine}.whl")
    assert wheel.name == f"hora-{VERSION}-py3-none-manylinux_2_28_{machine}.whl"
    shown = " ".join(output_of(tool("auditwheel"), "show", wheel).split())
    tag = re.search(r'consistent with the following platform tag: "manylinux_2_(\d+)_(\w+)"', shown)
    assert tag and int(tag[1]) <= 28 and tag[2] == machine, shown
    # It also lists what a host has to have: the C library.
    needed = re.search(r"external versioned symbols in system-provided shared libraries: (.*?)\.? This", shown)
    assert not re.search(r"lib(stdc\+\+|gcc_s|mpi|pmix|nccl|cuda|ssl)", needed[1] if needed else shown), shown


@pytest.mark.parametrize("machine", [MACHINE, *OTHERS])
def test_the_wheel_has_everything_once(machine):
    with zipfile.ZipFile(package(f"*_{machine}.whl")) as wheel:
        names = wheel.namelist()
        records = list(csv.reader(wheel.read(f"hora-{VERSION}.dist-info/RECORD").decode().splitlines()))
    data = f"hora-{VERSION}.data/data/"
    for place in ("share/man/man1/horarun.1", f"share/hora/{machine}/manifest.json", *WHERE.values()):
        assert data + place in names, place
    of_digest = {}
    for name, digest, size in records:
        # Files of a line or none mark packages.
        if not name.endswith(("/__init__.py", "/py.typed")) or int(size) > 100:
            of_digest.setdefault(digest, []).append(name)
    twice = [names for names in of_digest.values() if len(names) > 1]
    assert not twice, twice


NOTICES = "THIRD-PARTY-NOTICES.txt"


def check_notices(text):
    """Every library that is linked in, with a text of its licence that was there to be copied."""
    for name in ("cloudpickle", "GNU C Library", "GNU C++ runtime", "Gloo", "libmd", "libsodium", "libssh", "OpenSSL",
                 "yaml-cpp", "zlib", "Zstandard"):  # fmt: skip
        assert re.search(rf"^{re.escape(name)} - in ", text, re.M), name
    assert "had no copy of its licence" not in text
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in text and "GCC RUNTIME LIBRARY EXCEPTION" in text.upper()


@pytest.mark.parametrize("machine", [MACHINE, *OTHERS])
def test_the_wheel_has_the_licences_of_what_is_in_it(machine):
    info = f"hora-{VERSION}.dist-info"
    with zipfile.ZipFile(package(f"*_{machine}.whl")) as wheel:
        check_notices(wheel.read(f"{info}/{NOTICES}").decode())
        components = json.loads(wheel.read(f"{info}/sboms/hora.cdx.json"))["components"]
        assert all(component["version"] for component in components)
        metadata = wheel.read(f"{info}/METADATA").decode()
        assert f"License-File: {NOTICES}\n" in metadata and "LGPL-2.1-or-later" in metadata


def test_the_deb_has_the_licences_of_what_is_in_it(tmp_path):
    output_of(tool("dpkg-deb"), "--extract", package(f"*_{DEBIAN[MACHINE]}.deb"), tmp_path)
    doc = tmp_path / "usr/share/doc/hora"
    check_notices(gzip.decompress((doc / f"{NOTICES}.gz").read_bytes()).decode())
    assert f"{NOTICES}.gz" in (doc / "copyright").read_text()


def test_the_rpm_has_the_licences_of_what_is_in_it(tmp_path):
    found = package(f"*.{MACHINE}.rpm")
    assert "LGPL-2.1-or-later" in output_of(tool("rpm"), "--query", "--package", "--queryformat", "%{LICENSE}", found)
    unpack = f"{tool('rpm2cpio')} {found} | {tool('cpio')} --extract --quiet --make-directories './usr/share/doc/*'"
    output_of("sh", "-c", f"cd {tmp_path} && {unpack}")
    check_notices((tmp_path / "usr/share/doc/hora" / NOTICES).read_text())


@needs_a_root
@pytest.mark.parametrize("name", ENDS)
def test_two_commands_in_an_empty_environment(root, name):
    """pip install, horarun --smoke; and pip uninstall leaves no file."""
    wheel = package(f"*_{MACHINE}.whl")
    here = root(name)
    here.run("! command -v cc gcc c++ clang; python3 -m venv /opt/e; /opt/e/bin/pip --version")
    before = here.found()
    began = time.monotonic()
    here.run(f"/opt/e/bin/pip install --no-index /packages/{wheel.name}")
    installed = time.monotonic()
    smoke = here.run("/opt/e/bin/horarun -np 2 --smoke")
    print(f"\n{name}: installed in {installed - began:.1f} s, checked in {time.monotonic() - installed:.1f} s")
    assert "all ok" in smoke, smoke
    assert here.run("/opt/e/bin/horarun --version").strip().endswith(VERSION)
    assert "2 of 2" in here.run(f"/opt/e/bin/horovodrun -np 2 /opt/e/bin/python -c '{TRAIN}'")
    for shell, place in WHERE.items():
        assert here.run(f"cat /opt/e/{place}") == here.run(f"/opt/e/bin/horarun completion {shell}")
    assert "horarun" in here.run("head -5 /opt/e/share/man/man1/horarun.1")
    assert "2 of 2" in here.run(f"/opt/e/bin/horarun -np 2 /opt/e/bin/python -c '{TRAIN}'")
    assert "[0, 1]" in here.run(f"/opt/e/bin/python -c '{FUNCTION}'")
    here.run("/opt/e/bin/pip uninstall --yes hora")
    # pip leaves the folders above those that it removes, empty, whatever the wheel.
    folders = {"opt/e/share", *(f"opt/e/share/{name}" for name in ("bash-completion", "fish", "hora", "man", "zsh"))}
    assert here.found() - before <= folders, sorted(here.found() - before)


# --- .deb and .rpm -------------------------------------------------------------------------------


def test_lintian_has_no_complaint():
    found = output_of(tool("lintian"), "--fail-on", "none", "--allow-root", package(f"*_{DEBIAN[MACHINE]}.deb"))
    assert not [line for line in found.splitlines() if line[:2] in ("E:", "W:")], found


def test_rpmlint_has_no_complaint():
    rpm = package(f"*.{MACHINE}.rpm")
    found = output_of(tool("rpmlint"), "-c", REPOSITORY / "scripts/packages/rpmlint.toml", rpm)
    assert "0 errors, 0 warnings" in found, found


def check_an_installation(here, completions):
    assert "all ok" in here.run("horarun -np 2 --smoke")
    assert "2 of 2" in here.run(f"horarun -np 2 python3 -c '{TRAIN}'")
    assert "2 of 2" in here.run(f"horovodrun -np 2 python3 -c '{TRAIN}'")
    assert here.run("horarun --version").strip().endswith(VERSION)
    for shell, place in completions.items():
        assert here.run(f"cat /usr/{place}") == here.run(f"horarun completion {shell}")
    assert "horarun" in here.run("gzip -dc /usr/share/man/man1/horarun.1.gz | head -5")
    assert "horarun" in here.run("bash -c 'source /usr/share/bash-completion/completions/horarun; complete -p horarun'")


@needs_a_root
@pytest.mark.parametrize("name", ENDS)
def test_deb(root, name):
    deb = package(f"*_{DEBIAN[MACHINE]}.deb")
    here = root(name)
    before = here.found()
    here.run(f"dpkg --install /packages/{deb.name}")
    check_an_installation(here, DEB_COMPLETIONS)
    here.run("dpkg --verify hora; dpkg --purge hora")
    assert not here.found() - before, sorted(here.found() - before)


def test_the_deb_asks_for_the_c_library_alone():
    assert (
        output_of(tool("dpkg-deb"), "--field", package(f"*_{DEBIAN[MACHINE]}.deb"), "Depends").strip()
        == "libc6 (>= 2.28)"
    )


def test_the_rpm_asks_for_the_c_library_and_a_shell_alone():
    asked = output_of(tool("rpm"), "-qp", "--requires", package(f"*.{MACHINE}.rpm")).splitlines()
    assert [line for line in asked if not line.startswith("rpmlib(")] == ["/bin/sh", "glibc >= 2.28"], asked


@needs_a_root
@pytest.mark.parametrize("name", ENDS)
def test_rpm(root, name):
    """In a root whose C library the database of packages does not know, hence --nodeps."""
    rpm = package(f"*.{MACHINE}.rpm")
    here = root(name)
    manager = tool("rpm") + ' --root "$PWD" --dbpath /var/lib/rpm'
    before = here.found()
    here.run("true", outside=f"{manager} --initdb; {manager} --install --nodeps packages/{rpm.name}")
    check_an_installation(here, WHERE)
    here.run("true", outside=f"{manager} --verify --nodeps hora; {manager} --erase hora")
    assert not here.found() - before, sorted(here.found() - before)


@needs_arm64
@pytest.mark.skipif(MACHINE == "aarch64", reason="the packages of this machine are for ARM64")
@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_packages_for_arm64(tmp_path, kind):
    """Into Debian 12 for ARM64, unpacked only: no database of packages knows its C library. qemu runs it all."""
    found = package("*_arm64.deb" if kind == "deb" else "*.aarch64.rpm")
    here = Root(f"{roots.ROOTS}/arm64", tmp_path, PACKAGES, emulated=True)
    use = "uname -m; horarun --version; horarun --check-build; horarun -np 2 --smoke"
    use += f"; horarun -np 2 python3 -c '{TRAIN}'"
    here.run("touch /var/lib/dpkg/status")
    before = here.found()
    # Entering the root costs most, so each time does all it can.
    if kind == "deb":
        used = here.run(f"dpkg --install --force-depends /packages/{found.name}; dpkg --verify hora; {use}")
        here.run("dpkg --purge hora")
    else:
        # This machine's rpm; what it starts in the root is emulated.
        manager = f'{roots.EMULATED} {tool("rpm")} --root "$PWD" --dbpath /var/lib/rpm'
        install = f"{manager} --install --ignorearch --nodeps packages/{found.name}"
        used = here.run(use, outside=f"{manager} --initdb; {install}")
        here.run("true", outside=f"{manager} --verify --nodeps hora; {manager} --erase hora")
    for word in ("aarch64", VERSION, "[X] PyTorch", "all ok", "2 of 2"):
        assert word in used, (word, used)
    assert not here.found() - before, sorted(here.found() - before)


# --- recipes -------------------------------------------------------------------------------------


RECIPE = REPOSITORY / "scripts/packages/conda/recipe.yaml"
RENDER = [REPOSITORY / ".venv/bin/python", REPOSITORY / "tests/packages/render_recipe.py"]


@pytest.fixture(scope="module")
def rattler_build():
    """Renders a recipe for a platform: its parts, or the complaint."""
    if not list((REPOSITORY / ".venv").glob("lib/python*/site-packages/rattler_build")):
        pytest.skip("no rattler-build (scripts/setup --dev)")
    return lambda recipe, platform="linux-64", code=0: output_of(*RENDER, recipe, platform, code=code)


@pytest.mark.parametrize("platform", ["linux-64", "linux-aarch64"])
def test_the_conda_recipe(rattler_build, platform):
    (recipe,) = json.loads(rattler_build(RECIPE, platform))
    assert recipe["package"] == {"name": "hora", "version": VERSION}
    assert "__glibc >=2.28" in recipe["requirements"]["run"]
    assert recipe["build"]["python"]["version_independent"] is True
    # Files of another build would not fit: manifest.json names the hashes.
    assert recipe["build"]["dynamic_linking"]["binary_relocation"] is False
    assert "LGPL-2.1-or-later" in recipe["about"]["license"]


@pytest.mark.parametrize(
    "right, wrong, words",
    [
        ("version_independent:", "version_dependent:", "unknown field"),
        ("binary_relocation: false", "binary_relocation: {}", "expected boolean"),
        ("AND Zlib", "AND Zlibb", "spdx.org"),
        ("${{ version }}", "${{ versio }}", "versio"),
    ],
)
def test_a_wrong_recipe_is_found(rattler_build, tmp_path, right, wrong, words):
    text = RECIPE.read_text()
    assert right in text
    (tmp_path / "recipe.yaml").write_text(text.replace(right, wrong))
    assert words in rattler_build(tmp_path / "recipe.yaml", code=1)


def test_hadolint_has_no_complaint():
    output_of(tool("hadolint"), REPOSITORY / "scripts/packages/Containerfile")


@needs_a_root
def test_the_image(tmp_path):
    """Built from the recipe without a registry: a root of Debian 12 takes the place of debian:12-slim."""
    package(f"*_{DEBIAN[MACHINE]}.deb")
    base = f"{roots.ROOTS}/bookworm-plain"
    if not os.path.isdir(base):
        pytest.skip("no root bookworm-plain")
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n')
    env = {**os.environ, "CONTAINERS_STORAGE_CONF": str(storage)}
    buildah = tool("buildah")
    container = output_of(buildah, "from", "scratch", env=env).strip()
    output_of(buildah, "add", "--quiet", container, base, env=env)
    output_of(buildah, "commit", "--quiet", container, "docker.io/library/debian:12-slim", env=env)
    output_of(REPOSITORY / "scripts/package", "image", env=env)
    output_of(tool("umoci"), "unpack", "--image", f"{PACKAGES}/image:{VERSION}", tmp_path / "unpacked")
    config = json.loads((tmp_path / "unpacked/config.json").read_text())
    assert config["process"]["args"] == ["horarun", "--help"]
    (tmp_path / "root").mkdir()
    here = Root(str(tmp_path / "unpacked/rootfs"), tmp_path / "root", PACKAGES)
    assert "all ok" in here.run("horarun -np 2 --smoke")
    assert VERSION in output_of(
        buildah, "run", "--isolation", "chroot", output_of(buildah, "from", f"hora:{VERSION}", env=env).strip(), "--",
        "horarun", "--version", env=env,
    )  # fmt: skip
