# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs in processes that an engine owns. horarun runs the job as it runs any elastic one, on hosts that are
processes of the engine. This module keeps as many of them running as the job may use."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time

from hora import engine_hosts, launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from typing import Any

_log = logging.getLogger(__name__)

# The variables of this process that horarun itself needs. All others are left out: horarun would pass them to the
# ranks, and some describe the machine of the driver. The ranks have the environment of the engine.
_LAUNCHER_VARIABLES = ("HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
# Prefixes of the driver's settings that the ranks get, too.
PASSED_ON = ("HOROVOD_", "NCCL_", "GLOO_")
# Names the Python that runs ranks, for the commands of an engine's host.
PYTHON_VARIABLE = "HORA_ENGINE_PYTHON"

_POLL_SECONDS = 0.5
_WARN_AFTER_SECONDS = 10
_MAX_PAUSE_SECONDS = 60
_END_SECONDS = 30


class Engine:
    """Starts and ends processes. Each process calls hora.engine_host.serve() with the `server` that start() got."""

    #: Whether processes on one machine see the same GPUs, and choose theirs by local rank. Otherwise each process has
    #: GPUs of its own, and counts from 0.
    shares_devices = True

    def start(self, count: int, server: tuple[str, int, bytes]) -> None:
        """Requests `count` more processes, which start when the engine has resources. Does not wait. `server` is the
        address, port and key of the driver."""
        raise NotImplementedError

    def alive(self) -> int:
        """How many processes were requested and have not ended, whether they have started or not."""
        raise NotImplementedError

    def capacity(self) -> int:
        """How many processes the engine can run for this job, including those that are alive."""
        raise NotImplementedError

    def status(self) -> str:
        """Why processes may not have started, for messages."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends all processes."""
        raise NotImplementedError


class Limits:
    """How many ranks, and how long to wait for them. See horarun's options of the same names."""

    def __init__(
        self,
        np: int,
        min_np: int | None = None,
        max_np: int | None = None,
        start_timeout: float = 600,
        elastic_timeout: float | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
    ) -> None:
        self.np, self.max_np = np, max_np
        self.min_np = np if min_np is None else min_np
        self.start_timeout, self.elastic_timeout, self.reset_limit = start_timeout, elastic_timeout, reset_limit
        self.cooldown_range = cooldown_range
        for name, number in (("np", np), ("min_np", min_np), ("max_np", max_np), ("reset_limit", reset_limit)):
            least = 0 if name == "reset_limit" else 1
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                raise ValueError(f"{name}={number!r}: expected a number, {least} or more")
        if self.min_np > np or (max_np is not None and max_np < np):
            raise ValueError(f"min_np={min_np}, np={np}, max_np={max_np}: expected min_np <= np <= max_np")

    def options(self) -> list[str]:
        """These limits as options of horarun's command line."""
        words = ["-np", str(self.np), "--min-np", str(self.min_np)]
        for name, value in (
            ("--max-np", self.max_np),
            ("--reset-limit", self.reset_limit),
            ("--elastic-timeout", self.elastic_timeout),
        ):
            if value is not None:
                words += [name, f"{value:g}"]
        if self.cooldown_range:
            words += ["--blacklist-cooldown-range", *map(str, self.cooldown_range)]
        return words


class _Keeper(launch.Watcher):
    """Replaces processes that end, except where the function itself has failed: it would most likely fail again."""

    def __init__(self, engine, hosts, address, limits):
        self._engine, self._hosts, self._limits = engine, hosts, limits
        self._server = address, hosts.port, hosts.key
        self._over = threading.Event()
        self._started, self._started_at = 0, 0.0
        self._failed = 0
        self._returned = False
        self._launcher = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def _wanted(self):
        most = self._limits.max_np
        if most is None:
            most = max(self._limits.np, self._engine.capacity())
        return most - self._failed

    def fill(self):
        alive = self._engine.alive()
        missing = self._wanted() - alive
        if missing <= 0:
            return
        # A process that ends before it has connected would most likely do so again: wait longer and longer.
        failed_early = self._started - self._hosts.total() - (alive - self._hosts.count())
        pause = min(_MAX_PAUSE_SECONDS, 2 ** min(failed_early, 10)) if failed_early > 0 else 0
        if time.monotonic() - self._started_at >= pause:
            self._engine.start(missing, self._server)
            self._started += missing
            self._started_at = time.monotonic()

    def wait_for_first(self):
        """Blocks until there are enough hosts to start the job; TimeoutError after start_timeout."""
        begun = time.monotonic()
        warned = False
        self.fill()
        while self._hosts.count() < self._limits.np:
            waited = time.monotonic() - begun
            text = f"{self._hosts.count()} of {self._limits.np} processes of the job have started"
            if waited > self._limits.start_timeout:
                raise TimeoutError(f"{text} within {self._limits.start_timeout:g} s: {self._engine.status()}")
            if waited > _WARN_AFTER_SECONDS and not warned:
                _log.warning("%s after %d s: %s", text, _WARN_AFTER_SECONDS, self._engine.status())
                warned = True
            self._hosts.wait_for_change(_POLL_SECONDS)
            self.fill()
        self._thread.start()

    def _keep(self):
        try:
            while not self._over.wait(_POLL_SECONDS):
                self._hosts.retire_idle()
                # Once a rank has returned, the job takes no new hosts.
                if not self._returned:
                    self.fill()
        except Exception as error:
            self.error = error
            self._end_job()

    def began(self, launcher: subprocess.Popen[bytes]) -> None:
        self._launcher = launcher

    def returned(self, is_failure: bool) -> None:
        if not is_failure:
            self._returned = True
            return
        self._failed += 1
        most = self._limits.max_np or self._engine.alive()
        if not self._returned and most - self._failed < self._limits.min_np:
            self._end_job()  # it would wait for other hosts

    def _end_job(self):
        if self._launcher is not None:
            self._launcher.terminate()

    def close(self):
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)


class _Stream:
    """A descriptor whose data is written to a Python file object, such as that of a notebook cell."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        pipe, self.fd = os.pipe()
        self._thread = threading.Thread(target=self._copy, args=(pipe,), daemon=True)
        self._thread.start()
        return self

    def _copy(self, pipe):
        with open(pipe, errors="replace") as lines:
            for line in lines:
                self._file.write(line)
                self._file.flush()

    def __exit__(self, *failure):
        os.close(self.fd)
        self._thread.join(_END_SECONDS)


def run(
    engine: Engine,
    address: str,
    call: tuple[Callable[..., Any], Sequence[Any], dict[str, Any] | None],
    program: Sequence[str],
    limits: Limits,
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
) -> list[Any]:
    """Runs the function of `call` on the ranks of an elastic job; returns the results by rank, of the ranks that there
    were at the end. Blocks until the job has ended.

    address: of this machine, for the processes of the engine. program: the command of each rank; it runs
    hora.launch_worker. options: further options of horarun.
    """
    payload = launch.encode_call(*call, limits.np, "np")
    variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    variables.update({name: os.environ[name] for name in _LAUNCHER_VARIABLES if name in os.environ})
    variables.update(launch.checked_environment(env))
    if engine.shares_devices:
        variables["HORA_PLACES_BY_MACHINE"] = "1"
    with contextlib.closing(engine), contextlib.closing(engine_hosts.EngineHosts()) as hosts:
        with contextlib.closing(_Keeper(engine, hosts, address, limits)) as keeper:
            keeper.wait_for_first()
            arguments = [*limits.options(), *hosts.options(), *options, *program]
            with _Stream(stdout or sys.stdout) as out, _Stream(stderr or sys.stderr) as err:
                finished = launch.carry_out(payload, arguments, variables, [address], out.fd, err.fd, keeper)
        if keeper.error is not None:
            raise RuntimeError(f"the engine could not keep the job's processes: {keeper.error}") from keeper.error
        return finished.results()
