# SPDX-License-Identifier: Apache-2.0
"""What horarun prints, byte for byte: one folder per case.

    args     the arguments, one per line ("\\n" inside one is written so)
    stdout, stderr, exit
    env      optional: NAME=value lines; nothing else of the caller's environment is there
    mask     optional: REGEX<tab>REPLACEMENT lines, applied to what was printed before comparing
    other files are there for the case: it runs in a copy of its folder

HORARUN names the program. HORA_ACCEPT=1 writes what was printed as what is expected (scripts/accept
sets it); the diff is then read like code.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
CASES = sorted(path.name for path in HERE.iterdir() if (path / "args").is_file())
OWN = {"args", "stdout", "stderr", "exit", "env", "mask"}


def read_lines(path):
    return path.read_text().split("\n")[:-1] if path.exists() else []


def run(case, folder):
    for source in case.iterdir():
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
        elif source.name not in OWN:
            shutil.copy(source, folder)
    args = [line.replace("\\n", "\n") for line in read_lines(case / "args")]
    env = dict(line.split("=", 1) for line in read_lines(case / "env"))
    # A sanitizer's build needs its own settings.
    env.update({name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")})
    done = subprocess.run(
        [os.environ["HORARUN"], *args], cwd=folder, env=env, timeout=60, stdin=subprocess.DEVNULL, capture_output=True
    )
    printed = [done.stdout.decode(), done.stderr.decode()]
    for line in read_lines(case / "mask"):
        pattern, replacement = line.split("\t")
        printed = [re.sub(pattern, replacement, text) for text in printed]
    return {"stdout": printed[0], "stderr": printed[1], "exit": f"{done.returncode}\n"}


@pytest.mark.parametrize("name", CASES)
def test_case(name, tmp_path):
    case = HERE / name
    printed = run(case, tmp_path)
    if os.environ.get("HORA_ACCEPT"):
        for part, text in printed.items():
            (case / part).write_text(text)
    for part, text in printed.items():
        assert text == (case / part).read_text(), part


def test_there_are_cases():
    assert len(CASES) > 40


# One message of one shape for every usage error, with --json one event: nothing on stdout, exit code 2.
@pytest.mark.parametrize("name", [case for case in CASES if case.startswith("error_")])
def test_usage_errors_have_one_shape(name):
    case = HERE / name
    assert (case / "exit").read_text() == "2\n"
    assert (case / "stdout").read_text() == ""
    stderr = (case / "stderr").read_text()
    if "--json" in read_lines(case / "args"):
        assert stderr.count("\n") == 1
        assert json.loads(stderr)["code"] == "E_USAGE"
        return
    assert stderr.startswith("horarun: error: ")
    assert stderr.count("horarun: ") == 1
