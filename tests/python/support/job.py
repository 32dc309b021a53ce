# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a test job with the launcher that was built.

The build folder comes from HORA_BUILD_DIR (the folder that has bin/horarun and lib/libhora.so);
HORARUN and HORA_LIBRARY name one of the two by its path. The ranks use the bundle of that build;
HORA_TEST_RUNTIME=host makes them use the packages of this source tree.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGES = ROOT / "collectives" / "python"


def build_dir():
    """The newest build that has a launcher, unless HORA_BUILD_DIR names one."""
    chosen = os.environ.get("HORA_BUILD_DIR")
    if chosen:
        return pathlib.Path(chosen).resolve()
    built = [path.parent.parent for path in ROOT.glob("build/*/bin/horarun")]
    if not built:
        raise FileNotFoundError("no bin/horarun under build/*: build the project first, or set HORA_BUILD_DIR")
    return max(built, key=lambda path: (path / "bin" / "horarun").stat().st_mtime)


def bundle_dir():
    """What is shipped to hosts with this machine's processor."""
    return build_dir() / "share" / "hora" / os.uname().machine / "bundle"


def launcher():
    return os.environ.get("HORARUN") or str(build_dir() / "bin" / "horarun")


def environment(**variables):
    """This process's environment without the traces of another job, with ours on top."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOROVOD_", "HORA_RUN", "OMPI_", "PMI"))
    }
    path = [str(PACKAGES), str(ROOT / "tests" / "python"), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    env["HORARUN"] = launcher()
    if "HORA_LIBRARY" not in env:
        env["HORA_LIBRARY"] = str(build_dir() / "lib" / "libhora.so")
    # Ranks are as many as the cores or more: one thread each, as on a busy machine.
    env.setdefault("OMP_NUM_THREADS", "1")
    env.update({name: str(value) for name, value in variables.items()})
    return env


class Finished:
    """How a job ended: exit code, standard output, standard error."""

    def __init__(self, code, out, err, timed_out):
        self.code, self.out, self.err, self.timed_out = code, out, err, timed_out

    def __str__(self):
        state = "timed out" if self.timed_out else f"exit code {self.code}"
        return f"{state}\n--- stdout\n{self.out[-8000:]}\n--- stderr\n{self.err[-8000:]}"


def run_command(command, timeout=120, cwd=None, **variables):
    """Runs a command in its own process group; ends the group at the time-out."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            env=environment(**variables),
            cwd=cwd,
            start_new_session=True,
        )
        timed_out = False
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            code = _end(process)
        for stream in (out, err):
            stream.seek(0)
        return Finished(code, out.read(), err.read(), timed_out)


def _end(process):
    for number, grace in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            return process.wait(grace)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return process.wait(grace)
    return process.wait(10)


def horarun(np, *options):
    """The words that start a command on np ranks."""
    runtime = os.environ.get("HORA_TEST_RUNTIME")
    chosen = ["--runtime", runtime] if runtime else []
    return [launcher(), "-np", str(np), *chosen, *map(str, options)]


def run_python(np, script, *arguments, timeout=120, python=None, options=(), cwd=None, **variables):
    """Runs a Python script on np ranks."""
    command = [*horarun(np, *options), python or sys.executable, str(script), *map(str, arguments)]
    return run_command(command, timeout, cwd, **variables)


def scratch_folder():
    """A folder that the caller removes."""
    return pathlib.Path(tempfile.mkdtemp(prefix="hora-test-"))


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)
