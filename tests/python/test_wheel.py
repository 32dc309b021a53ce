# SPDX-License-Identifier: Apache-2.0
"""The wheel: built by pip, installed into a new environment, run where the repository cannot be
seen, and removed without a trace."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile

import pytest

from support import job

MACHINE = os.uname().machine
SCRIPT = """
import os, sys
import torch
import horovod.torch as hvd
from hora import _native

hvd.init()
total = hvd.allreduce(torch.full((5,), float(hvd.rank() + 1)), op=hvd.Sum)
names = hvd.allgather_object((hvd.rank(), lambda: hvd.size()))
assert total.tolist() == [3.0] * 5, total
assert [name for name, size in names] == [0, 1] and names[1][1]() == 2
opened = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
assert not [path for path in opened if path.startswith(sys.argv[1])], opened
print("rank", hvd.rank(), "used", _native.library().path, flush=True)
"""

FUNCTION = """
import hora

def work(x):
    import hora.numpy as hvd
    hvd.init()
    return float(hvd.allreduce([x + hvd.rank()], op=hvd.Sum)[0])

if __name__ == "__main__":
    print(hora.run(work, args=(2.0,), np=2))
"""


def run(*command, hidden=None, cwd="/", timeout=120, **variables):
    """A command as a new user runs it: no variable of ours; with `hidden` that folder is empty."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HORA", "HOROVOD", "PYTHON", "OMPI_", "PMI"))
    }
    env.update(variables)
    command = [str(word) for word in command]
    if hidden is not None:
        command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden), *command]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def can_hide():
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return done.returncode == 0


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """A new environment with pip, which sees the system's packages (PyTorch) and nothing of ours."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: scripts/setup")
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", folder / "venv"], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"python -m venv does not work here: {made.stdout}{made.stderr}")
    return folder


@pytest.fixture(scope="module")
def wheel(builder):
    run(
        builder / "venv/bin/pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        builder / "wheels",
        job.ROOT,
        timeout=1500,
        HORA_WHEEL_BUILD_DIR=str(job.ROOT / "build" / "wheel"),
    )
    (file,) = (builder / "wheels").iterdir()
    return file


def test_name_and_contents(wheel):
    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if (job.ROOT / f"build/sysroot/{os.uname().machine}/complete").exists():  # what tests/packages checks in detail
        machine = f"manylinux_2_28_{os.uname().machine}"
    assert re.fullmatch(rf"hora-[\d.]+-py3-none-{machine}\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert archive.testzip() is None
        info = next(name.split("/")[0] for name in names if name.endswith(".dist-info/WHEEL"))
        recorded = {line.split(",")[0] for line in archive.read(f"{info}/RECORD").decode().splitlines()}
        executable = {name for name in names if archive.getinfo(name).external_attr >> 16 & 0o111}
    assert recorded == names
    data = info.replace(".dist-info", ".data")
    assert f"{data}/scripts/horarun" in executable
    assert f"{data}/data/share/hora/{MACHINE}/agent/hora-agent" in executable
    bundle = f"{data}/data/share/hora/{MACHINE}/bundle"
    for name in (
        "hora.pth",
        f"{bundle}/python/hora/_native.py",
        f"{bundle}/python/horovod/torch/__init__.py",
        f"{bundle}/python/sparkdl/__init__.py",
        f"{bundle}/lib/libhora.so",
        f"{data}/data/share/hora/{MACHINE}/manifest.json",
    ):
        assert name in names, name
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def files_below(folder):
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_install_use_and_remove(builder, wheel, tmp_path):
    pytest.importorskip("torch")
    environment = builder / "venv"
    python, pip, horarun = (environment / "bin" / name for name in ("python", "pip", "horarun"))
    before = files_below(environment)
    run(pip, "install", "--quiet", "--no-index", wheel)
    hidden = job.ROOT if can_hide() else None
    home = tmp_path / "home"
    home.mkdir()
    job_variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    try:
        for name, text in (("train.py", SCRIPT), ("function.py", FUNCTION)):
            (tmp_path / name).write_text(textwrap.dedent(text))
        out = run(horarun, "-np", 2, python, tmp_path / "train.py", job.ROOT, hidden=hidden, **job_variables)
        used = re.findall(r"rank \d used (\S+)", out)
        assert len(used) == 2 and not any(path.startswith(str(job.ROOT)) for path in used), out
        out = run(python, tmp_path / "function.py", hidden=hidden, **job_variables)
        assert "[5.0, 5.0]" in out
        out = run(python, "-m", "horovod.runner.launch", "--version", hidden=hidden)
        assert re.search(r"\d+\.\d+", out)
        where = run(python, "-c", "import hora; print(hora.__file__)", hidden=hidden).strip()
        assert pathlib.Path(where).is_relative_to(environment)
    finally:
        run(pip, "uninstall", "--quiet", "--yes", "hora")
    left = files_below(environment) - before
    assert not left, sorted(left)[:20]
    gone = subprocess.run(
        [python, "-c", "import horovod"], capture_output=True, cwd="/", env={"PATH": os.environ["PATH"]}
    )
    assert gone.returncode != 0
