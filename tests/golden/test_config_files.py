# SPDX-License-Identifier: Apache-2.0
"""Configuration files that were found, not named, are read only if they belong to the user or root."""

import os
import subprocess

import pytest

HORARUN = os.environ["HORARUN"]


def show(folder):
    return subprocess.run(
        [HORARUN, "--show-config", "-np", "2", "true"],
        cwd=folder,
        env={"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_project_file_is_found(tmp_path):
    (tmp_path / "hora.yaml").write_text("horarun: {fan-out: 3}\n")
    done = show(tmp_path)
    assert done.returncode == 0 and "--fan-out 3" in done.stdout and "hora.yaml:1:20" in done.stdout, done


def test_a_world_writable_file_is_not_used(tmp_path):
    (tmp_path / "hora.yaml").write_text("horarun: {fan-out: 3}\n")
    os.chmod(tmp_path / "hora.yaml", 0o666)
    done = show(tmp_path)
    assert done.returncode == 2 and "hora.yaml" in done.stderr and "--no-config" in done.stderr, done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_another_user_is_not_used(tmp_path):
    (tmp_path / "hora.yaml").write_text("horarun: {fan-out: 3}\n")
    os.chown(tmp_path / "hora.yaml", 4242, 4242)
    done = show(tmp_path)
    assert done.returncode == 2 and "4242" in done.stderr and "--no-config" in done.stderr, done


def test_a_folder_instead_of_the_file(tmp_path):
    (tmp_path / "hora.yaml").mkdir()
    done = show(tmp_path)
    assert done.returncode == 2 and "expected a file" in done.stderr, done


def test_unknown_keys_are_reported_and_ignored(tmp_path):
    (tmp_path / "c.yaml").write_text("odd_key: 1\nparams:\n  zeta: 3\n  cycle_time_ms: 2\nverbose: 1\n")
    done = subprocess.run(
        [HORARUN, "--config-file", "c.yaml", "-np", "1", "--dry-run", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    assert "c.yaml:1:1: unknown key 'odd_key' is ignored" in done.stderr, done
    assert "c.yaml:5:1: 'verbose' belongs under 'horarun:'; it is ignored here" in done.stderr, done
    assert "c.yaml:3:3: unknown key 'zeta' in section 'params' is ignored" in done.stderr, done
