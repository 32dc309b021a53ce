# SPDX-License-Identifier: Apache-2.0
"""--check-build reports what is available now, not what was available when Hora was built."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

HORARUN = pathlib.Path(os.environ["HORARUN"]).resolve()
SHARE = HORARUN.parent.parent / "share/hora"
MACHINE = os.uname().machine

pytestmark = pytest.mark.skipif(
    not (SHARE / MACHINE / "bundle/lib/libhora.so").exists(), reason="this build has no bundle"
)


@pytest.fixture
def frameworks(tmp_path, monkeypatch):
    """What the Python in PATH can import: PyTorch and TensorFlow, which must not be imported to be found."""
    for name in ("torch", "tensorflow"):
        (tmp_path / "importable" / name).mkdir(parents=True)
        (tmp_path / "importable" / name / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "importable"))
    return tmp_path / "importable"


@pytest.fixture
def installation(tmp_path, frameworks):
    (tmp_path / "bin").mkdir()
    shutil.copy(HORARUN, tmp_path / "bin/horarun")
    shutil.copytree(SHARE, tmp_path / "share/hora", symlinks=True)
    return tmp_path


def facts(installation):
    # What is broken may crash the child that loads it; a sanitizer would say so here.
    env = {**os.environ, **{f"{sanitizer}_OPTIONS": "handle_sigbus=0:handle_segv=0" for sanitizer in ("ASAN", "TSAN")}}
    printed = subprocess.run(
        [installation / "bin/horarun", "--check-build", "--json"],
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
        env=env,
    )
    assert printed.stderr == ""
    return json.loads(printed.stdout)


def text(program):
    return subprocess.run([program, "--check-build"], check=True, timeout=120, capture_output=True, text=True).stdout


def boxes(installation):
    printed = text(installation / "bin/horarun")
    return [line.strip() for line in printed.splitlines() if line.startswith("    [")]


def test_a_whole_installation(installation):
    found = facts(installation)
    assert found["runtime"]["error"] == ""
    assert found["controllers"]["Gloo"]
    assert boxes(installation).count("[X] PyTorch") == 1


def test_tls_is_a_module_of_the_bundle(installation):
    module = installation / "share/hora" / MACHINE / "bundle/lib/libhora_tls.so"
    if not module.exists():
        pytest.skip("built without OpenSSL")
    row = {row["name"]: row for row in facts(installation)["features"]}["TLS"]
    assert row["built"] and row["loads"] and os.path.realpath(row["path"]) == str(module.resolve()), row
    module.unlink()
    assert not {row["name"]: row for row in facts(installation)["features"]}["TLS"]["built"]


def test_ssh_is_a_module_of_the_launcher(installation):
    module = installation / "share/hora" / MACHINE / "launcher/libhora_ssh.so"
    row = {row["name"]: row for row in facts(installation)["features"]}["SSH"]
    if not row["built"]:
        pytest.skip("built without libssh")
    assert row["loads"], row
    module.unlink()
    row = {row["name"]: row for row in facts(installation)["features"]}["SSH"]
    assert not row["loads"] and "libhora_ssh.so" in row["note"], row
    # A job on this machine needs no ssh.
    horarun = installation / "bin/horarun"
    assert subprocess.run([horarun, "-np", "1", "true"], timeout=120).returncode == 0
    done = subprocess.run([horarun, "-H", "192.0.2.1:1", "true"], timeout=120, capture_output=True, text=True)
    assert done.returncode != 0 and "libhora_ssh.so" in done.stderr, done


def test_a_missing_module_is_not_there(installation):
    module = installation / "share/hora" / MACHINE / "bundle/lib/libhora_gloo.so"
    if not module.exists():
        pytest.skip("built without Gloo")
    assert facts(installation)["tensor_operations"]["Gloo"]
    module.unlink()
    found = facts(installation)
    assert not found["tensor_operations"]["Gloo"]
    feature = {row["name"]: row for row in found["features"]}["GLOO"]
    assert not feature["loads"]
    assert "libhora_gloo.so" in feature["note"]
    assert "[ ] Gloo" in boxes(installation)


def test_a_broken_module_does_not_load(installation):
    module = installation / "share/hora" / MACHINE / "bundle/lib/libhora_gloo.so"
    if not module.exists():
        pytest.skip("built without Gloo")
    module.write_bytes(module.read_bytes()[:4096])
    assert not facts(installation)["tensor_operations"]["Gloo"]


def test_a_missing_framework_package(installation):
    shutil.rmtree(installation / "share/hora" / MACHINE / "bundle/python/horovod/torch")
    found = facts(installation)["frameworks"]
    assert not found["PyTorch"]
    assert found["TensorFlow"]


def test_a_framework_that_cannot_be_imported_here(installation, frameworks, monkeypatch):
    shutil.rmtree(frameworks / "torch")
    # Without packages of the user and the site, of which the machine may have any.
    python = installation / "bin/python3"
    python.write_text('#!/bin/sh\nexec /usr/bin/python3 -S -s "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    assert boxes(installation)[:3] == ["[X] TensorFlow", "[ ] PyTorch", "[ ] MXNet"]


def test_the_heading_of_horovodrun(installation):
    (installation / "bin/horovodrun").symlink_to("horarun")
    assert text(installation / "bin/horovodrun").startswith("Horovod v0.28.1:\n\nAvailable Frameworks:\n")
    assert text(installation / "bin/horarun").startswith("Hora v")


def test_a_runtime_that_does_not_load_ticks_nothing(installation):
    (installation / "share/hora" / MACHINE / "bundle/lib/libhora.so").write_bytes(b"\x7fELF")
    assert all(line.startswith("[ ]") for line in boxes(installation))
    assert "libhora.so" in facts(installation)["runtime"]["error"]


def test_no_installation_at_all(installation):
    shutil.rmtree(installation / "share")
    assert all(line.startswith("[ ]") for line in boxes(installation))
    assert "incomplete" in facts(installation)["runtime"]["error"]
