# SPDX-License-Identifier: Apache-2.0
"""Every option of horovodrun is there under each of its names and sets the variables that it sets there; one
whose machinery is missing is refused by its name and never ignored."""

import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent


def read_rows():
    for line in (HERE / "horovodrun_options.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            fields = [field.strip() for field in line.split(";")] + ["", "", ""]
            names, value, others, variables = fields[:4]
            for name in names.split():
                yield pytest.param(name, value, others, set(variables.split()), id=name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("options")
    (path / "options.yaml").write_text("params:\n  cycle_time_ms: 1\n")
    (path / "hosts").write_text("a slots=2\n")
    (path / "key").write_text("")
    return path


def horarun(folder, *args):
    environment = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
    environment["HOME"] = str(folder)  # mpirun of Open MPI 5 does not print its version without one
    return subprocess.run(
        [os.environ["HORARUN"], *args],
        cwd=folder,
        env=environment,
        timeout=60,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name, value, others, variables", read_rows())
def test_option(folder, name, value, others, variables):
    if others == "question":
        assert horarun(folder, name).returncode == 0
        return
    may_be_refused = value.startswith("refused")
    words = value.removeprefix("refused").split() if may_be_refused else [value] if value else []
    option = [name + words[0]] if words and words[0].startswith("=") else [name, *words]
    ranks = [] if name in ("-np", "--num-proc") else ["-np", "2"]
    done = horarun(folder, *ranks, *others.split(), *option, "--dry-run", "--json", "program")
    if may_be_refused and done.returncode == 2:
        named = name in done.stderr or (name == "--host-discovery-script" and "the discovery script" in done.stderr)
        assert named and len(done.stderr.splitlines()) == 1, done.stderr
        return
    assert done.returncode == 0, done.stderr
    if may_be_refused:
        return  # tested where its machinery is
    found = set(json.loads(done.stdout)["environment"]["set_by_options"])
    assert variables <= found, (variables, found)
    assert not name.startswith("--no-autotune") or "HOROVOD_AUTOTUNE" not in found
