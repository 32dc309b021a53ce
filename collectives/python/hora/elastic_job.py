# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs in processes that an engine owns: horarun runs the job, as it runs any elastic one, on hosts
that are processes of the engine; this keeps as many of them there as the job may use."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time

from hora import launch, members

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from typing import Any

_log = logging.getLogger(__name__)

# What horarun itself needs of this process's environment. Everything else that it has, the ranks would get,
# and with it what speaks of the driver's machine; they have the engine's own environment.
_OF_THE_LAUNCHER = ("HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
# Settings of the driver's that hold for the ranks, too.
PASSED_ON = ("HOROVOD_", "NCCL_", "GLOO_")
# Where a member's commands find the Python that runs ranks.
PYTHON_VARIABLE = "HORA_MEMBER_PYTHON"

_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 10
_LONGEST_PAUSE_SECONDS = 60
_END_SECONDS = 30


class Engine:
    """Where processes come from. Each calls hora.member.serve() with what start() was given."""

    #: Whether processes on one machine see the same GPUs, and tell them apart by their local ranks there. A process
    #: with GPUs of its own counts from 0.
    shares_devices = True

    def start(self, count: int, desk: tuple[str, int, bytes]) -> None:
        """Asks for so many more processes, which begin when there is room. Does not wait."""
        raise NotImplementedError

    def alive(self) -> int:
        """How many were asked for and have not ended, whether they have begun or not."""
        raise NotImplementedError

    def room(self) -> int:
        """For how many there is room, those that are alive included."""
        raise NotImplementedError

    def trouble(self) -> str:
        """What the engine says about processes that do not come: for messages."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends all of them."""
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
    """Replaces members that end. Where the function itself has failed, nothing else takes the place of that
    member: it would most likely fail again."""

    def __init__(self, engine, present, desk_address, limits):
        self._engine, self._present, self._limits = engine, present, limits
        self._desk = desk_address, present.port, present.key
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
            most = max(self._limits.np, self._engine.room())
        return most - self._failed

    def fill(self):
        alive = self._engine.alive()
        missing = self._wanted() - alive
        if missing <= 0:
            return
        # Those that end before they have come would most likely do so again.
        stillborn = self._started - self._present.total() - (alive - self._present.count())
        pause = min(_LONGEST_PAUSE_SECONDS, 2 ** min(stillborn, 10)) if stillborn > 0 else 0
        if time.monotonic() - self._started_at >= pause:
            self._engine.start(missing, self._desk)
            self._started += missing
            self._started_at = time.monotonic()

    def wait_for_first(self):
        """Until there are enough to begin."""
        begun = time.monotonic()
        told = False
        self.fill()
        while self._present.count() < self._limits.np:
            waited = time.monotonic() - begun
            text = f"{self._present.count()} of {self._limits.np} processes of the job have started"
            if waited > self._limits.start_timeout:
                raise TimeoutError(f"{text} within {self._limits.start_timeout:g} s: {self._engine.trouble()}")
            if waited > _PATIENCE_SECONDS and not told:
                _log.warning("%s after %d s: %s", text, _PATIENCE_SECONDS, self._engine.trouble())
                told = True
            self._present.wait_for_change(_LOOK_SECONDS)
            self.fill()
        self._thread.start()

    def _keep(self):
        try:
            while not self._over.wait(_LOOK_SECONDS):
                self._present.retire_idle()
                # Once a rank has returned, the job takes no new ones.
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
            self._end_job()  # it would wait for others

    def _end_job(self):
        if self._launcher is not None:
            self._launcher.terminate()

    def close(self):
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)


class _Stream:
    """A descriptor for what another process writes to a file of Python's, such as that of a notebook's cell."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        pipe, self.fd = os.pipe()
        self._thread = threading.Thread(target=self._hand_on, args=(pipe,), daemon=True)
        self._thread.start()
        return self

    def _hand_on(self, pipe):
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
    """call's function on the ranks; their results by rank, of those that there were in the end.

    address: of this machine, by which the engine's processes reach it. program: what each rank runs, the
    rest of it hora.launch_worker. options: further ones of horarun's."""
    payload = launch.encode_call(*call, limits.np, "np")
    variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    variables.update({name: os.environ[name] for name in _OF_THE_LAUNCHER if name in os.environ})
    variables.update(env or {})
    if engine.shares_devices:
        variables["HORA_PLACES_BY_MACHINE"] = "1"
    with contextlib.closing(engine), contextlib.closing(members.Members()) as present:
        with contextlib.closing(_Keeper(engine, present, address, limits)) as keeper:
            keeper.wait_for_first()
            words = [*limits.options(), *present.options(), *options, *program]
            with _Stream(stdout or sys.stdout) as out, _Stream(stderr or sys.stderr) as err:
                finished = launch.carry_out(payload, words, variables, [address], out.fd, err.fd, keeper)
        if keeper.error is not None:
            raise RuntimeError(f"the engine could not keep the job's processes: {keeper.error}") from keeper.error
        return finished.results()
