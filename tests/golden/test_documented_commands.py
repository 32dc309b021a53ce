# SPDX-License-Identifier: Apache-2.0
"""horarun understands every command of the pages as it is typed there: it plans jobs, and verbs have those options."""

import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HORARUN = os.environ["HORARUN"]
BLOCK = re.compile(r"^ *```(sh|console)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
PROMPT = re.compile(r"^ *\w*[$#] ")
# What the commands name besides the options.
FILES = ("train.py", "hosts", "hosts.sh", "server", "src/train.py", "job.token", "job.env")
# Where a page starts a job without hosts, it is in an allocation.
ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
# They have no plan before hosts dial, a script has run, or a host has counted its GPUs.
WITHOUT_PLAN = {"--listen", "--host-discovery-script", "gpu"}
VERBS = {"cache", "doctor", "rendezvous", "timeline"}
JUST_RUN = {"explain", "completion", "--check-build"}


def documented_commands():
    """(page, words) of each command of a shell block, or after a prompt, that starts with horarun."""
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        for kind, block in BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                if kind == "console" and not PROMPT.match(line):
                    continue
                words = shlex.split(PROMPT.sub("", line) if kind == "console" else line, comments=True)
                words = words[: next((at for at, word in enumerate(words) if word.startswith((">", "|"))), len(words))]
                while words and re.match(r"[A-Z_]+=", words[0]):
                    words.pop(0)
                if words and words[0] == "horarun":
                    yield pytest.param(words[1:], id=f"{page.relative_to(ROOT)}: {' '.join(words[1:])}")


@pytest.fixture
def project(tmp_path):
    """A folder as the pages assume it."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    (tmp_path / "roles").write_text("0 ./coordinator\n* ./worker\n")
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True, timeout=60)
    return tmp_path


def horarun(project, *words):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(project)}
    environment.update({name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")})
    if not {"-np", "-H", "--hostfile", "--workers"} & set(words):
        environment.update(ALLOCATION)
    return subprocess.run(
        [HORARUN, *words],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("words", documented_commands())
def test_command(project, words):
    if words[0] in VERBS or "--manifest" in words:
        known = horarun(project, words[0], "--help" if words[0] == "timeline" else "--help=all").stdout
        unknown = [word for word in words[1:] if word.startswith("-") and word not in known]
        assert not unknown and known.startswith(f"usage: horarun {words[0]} "), known
        return
    if words[0] in JUST_RUN:
        done = horarun(project, *words)
    elif words[0] == "k8s":
        done = horarun(project, "k8s", "--dry-run", *words[1:])
    else:
        done = horarun(project, "--show-config" if WITHOUT_PLAN & set(words) else "--dry-run", *words)
    assert done.returncode == 0, done.stderr


def test_there_are_commands():
    assert len(list(documented_commands())) > 40
