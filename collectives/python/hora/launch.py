# SPDX-License-Identifier: Apache-2.0
"""Runs a function on every rank of a new job: the launcher starts the ranks, each asks this
process for the function and sends back what it returned.

The function travels as a cloudpickle. A rank proves that it belongs to the job with a key that
reaches it through its environment, and nothing is unpickled before that.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

from hora import authenticated_server, rank_error, serialization
from hora.rank_error import JobFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from typing import Any

    from hora import channel

WORKER_MODULE = "hora.launch_worker"

# The exit code for a wrong command line. Ranks may exit with it, too; then there is a report.
_USAGE = 2

# How long an interrupted launcher may take to end its job.
_END_SECONDS = 30


def find_horarun() -> str:
    """The launcher's path: HORARUN, the installation that this package is part of, the environment, PATH."""
    chosen = os.environ.get("HORARUN")
    if chosen:
        return chosen
    package = os.path.dirname(os.path.abspath(__file__))
    bundle = os.path.dirname(os.path.dirname(package))  # <prefix>/share/hora/<machine>/bundle
    prefix = os.path.abspath(os.path.join(bundle, *[os.pardir] * 4))
    for root in (prefix, sys.prefix):
        candidate = os.path.join(root, "bin", "horarun")
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which("horarun")
    if found is None:
        raise FileNotFoundError("horarun was not found: put it on PATH, or set HORARUN to its path")
    return found


class _ResultServer(authenticated_server.AuthenticatedServer):
    """Sends the function to the ranks and receives their results."""

    def __init__(self, payload, everywhere, watcher):
        self._payload, self._watcher = payload, watcher
        self.outcomes = {}  # rank -> ("ok", value) or ("error", JobFailed)
        super().__init__(everywhere)

    def talk(self, connection: socket.socket, link: channel.Channel) -> None:
        connection.settimeout(None)  # the function may be large, and its call may take any time
        link.send(self._payload)
        rank, outcome = _read_outcome(link.receive())
        with self._lock:
            # In an elastic job another process may have replaced one that failed.
            if self.outcomes.get(rank, ("error",))[0] == "error":
                self.outcomes[rank] = outcome
        self._watcher.returned(is_failure=outcome[0] == "error")
        link.send(b"seen")


class Watcher:
    """Receives the events of a job; subclasses override what they need."""

    def began(self, launcher: subprocess.Popen[bytes]) -> None:
        """The launcher has started."""

    def returned(self, is_failure: bool) -> None:
        """The function has returned on a rank, or failed. May be called from any thread."""


def encode_outcome(kind: bytes, rank: int, body: bytes) -> bytes:
    """The message by which a rank reports its outcome. kind is b"R" (a pickled result) or b"E" (rank_error.encode)."""
    return kind + rank.to_bytes(8, "little") + body


def _read_outcome(message):
    """(rank, ("ok", value) or ("error", JobFailed))"""
    kind, rank, body = message[:1], int.from_bytes(message[1:9], "little"), message[9:]
    if kind == b"E":
        return rank, ("error", rank_error.decode(rank, body))
    try:
        return rank, ("ok", serialization.loads(body, f"the result of rank {rank}"))
    except Exception as error:
        return rank, ("error", JobFailed(f"rank {rank} failed:\n{error}", rank))


class _Report:
    """Reads the report of the launcher from a pipe, for callers that do not see its output (notebooks). Nothing remains
    of a pipe when this process is killed."""

    _END = b"\0"  # JSON does not contain it

    def __init__(self):
        self._from, self.fd = os.pipe()
        self._data = b""
        self._reading = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        try:
            self._reading.start()
        except RuntimeError:  # the thread could not be started
            self._close()
            raise
        return self

    def _read(self):
        # Not to the end of the file: a process that another thread forks may hold the pipe open.
        while not self._data.endswith(self._END):
            self._data += os.read(self._from, 65536)

    def __exit__(self, *failure):
        os.write(self.fd, self._END)  # after all that the launcher has written
        self._reading.join()
        self._close()

    def _close(self):
        os.close(self.fd)
        os.close(self._from)

    def text(self):
        """ "" if the launcher wrote no report."""
        try:
            return json.loads(self._data[:-1]).get("text", "").strip()
        except ValueError:
            return ""


def _are_local(hosts):
    """Whether these host names are all of this machine; False without names."""
    return bool(hosts) and all(name in ("localhost", "127.0.0.1") for name in hosts)


def _plan(words, environment, program=("true",)):
    """The plan of the launcher, by --dry-run. RuntimeError has its error message."""
    asked = subprocess.run(
        # --mpi leaves the placement of the ranks to mpirun, but not the choice of hosts.
        [find_horarun(), "--dry-run", "--json", *(word for word in words if word != "--mpi"), *program],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_END_SECONDS,
    )
    if asked.returncode != 0:
        text = asked.stderr.decode(errors="replace").strip()
        with contextlib.suppress(ValueError, LookupError, TypeError):  # an error without an event
            text = json.loads(text.splitlines()[-1])["message"]
        raise RuntimeError(text)
    return json.loads(asked.stdout)


def _all_slots(words, environment):
    """The number of ranks of a job without -np."""
    try:
        return _plan(words, environment)["world_size"]
    except RuntimeError as error:
        raise ValueError(f"np=None: {error}") from None


def _usage_error(command, environment):
    """The error message of the launcher about its command line, which it has printed where the caller may not look."""
    try:
        _plan(command, environment, program=())
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""


def _runs_here(words, hosts, hostfile, environment):
    """Whether all ranks will run on this machine, as far as that is known before the launch."""
    if hosts:
        return _are_local([part.split(":")[0].strip() for part in hosts.split(",")])
    if hostfile:
        return False
    # The launcher finds hosts in configuration files, the environment, and batch systems.
    try:
        return _are_local([host["name"] for host in _plan(words, environment)["hosts"]])
    except (RuntimeError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return False  # unknown, or the launch will report the error


def local_addresses() -> list[str]:
    """The IPv4 addresses of this machine without those of the loopback interface."""
    found: list[str] = []
    with contextlib.suppress(OSError), open("/proc/net/fib_trie") as file:
        address = ""
        for line in map(str.split, file):
            if line[:1] == ["|--"]:
                address = line[1]
            elif line[:3] == ["/32", "host", "LOCAL"] and not address.startswith("127.") and address not in found:
                found.append(address)
    return found


def _call(command, watcher, **options):
    """Runs a command and returns its exit code. If the wait is interrupted, the command gets SIGTERM, so that it ends
    its job."""
    with subprocess.Popen(command, **options) as process:
        try:
            watcher.began(process)
            return process.wait()
        except BaseException as error:
            # The ranks get the same, so that they can save their work.
            number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
            process.send_signal(number)
            try:
                process.wait(_END_SECONDS)
            except KeyboardInterrupt:  # again: it kills them
                process.send_signal(number)
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    np: int | None = 1,
    hosts: str | None = None,
    hostfile: str | None = None,
    options: Sequence[str] = (),
    executable: str | None = None,
    env: dict[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    results: int | None = None,
) -> list[Any]:
    """Calls func(*args, **kwargs) on every rank of a new job; returns the results by rank.

    Starts horarun and blocks until the job has ended; --start-timeout among the options limits how long the ranks may
    take to start. If this process is interrupted or killed, the job ends. The function, its arguments and its result
    travel as cloudpickles, over connections that prove a key of this call before anything is unpickled.

    Args:
        np: the number of ranks. None: all slots of hosts, hostfile or the allocation
        hosts: where they run, such as "a:2,b:2". Default: the first slots of the allocation (Slurm, ...) that this
            process is in, or this machine
        hostfile: the path of a file with hosts, instead of hosts
        options: further options for horarun's command line, as a list
        executable: the Python that runs the ranks. Default: this one
        env: variables for the ranks, added to those of this process
        stdout, stderr: files for what horarun prints, as subprocess.Popen takes them. Default: those of this process
        results: from how many ranks to return results. Default: np. Elastic jobs have fewer

    Raises:
        JobFailed: a RuntimeError: the text has the traceback of the rank that failed, or what horarun reports
        ValueError, TypeError: an argument is wrong, or the function or an argument of it cannot be pickled
        FileNotFoundError: horarun was not found
    """
    if hosts and hostfile:
        raise ValueError("give hosts= or hostfile=, not both")
    for name, value in (("hosts", hosts), ("hostfile", hostfile)):
        if value is not None and not isinstance(value, (str, os.PathLike)):
            raise TypeError(f"{name}={value!r}: expected text{', such as a:2,b:2' if name == 'hosts' else ''}")
    if isinstance(options, (str, bytes)):
        raise TypeError(f"options={options!r}: expected a list of words, such as ['--verbose']")
    payload = encode_call(func, args, kwargs, 1 if np is None else np, "np")
    variables = {**os.environ, **checked_environment(env)}
    words = []
    if hosts:
        words += ["-H", hosts]
    if hostfile:
        words += ["--hostfile", os.fspath(hostfile)]
    words += options
    if np is None:
        np = _all_slots(words, variables)
    words = ["-np", str(np), *words]
    local = _runs_here(words, hosts, hostfile, variables)
    # Ranks on other hosts connect to an address of this machine; under mpirun they do not know which.
    addresses = ["127.0.0.1"] if local else local_addresses()
    variables["HORA_RUN_PATH"] = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    variables["PYTHONPATH"] = os.pathsep.join([root] + [part for part in [variables.get("PYTHONPATH")] if part])
    program = [executable or sys.executable, "-m", WORKER_MODULE]
    finished = carry_out(payload, [*words, *program], variables, addresses, stdout, stderr)
    return finished.results(results or np)


def checked_environment(env: dict[str, str] | None) -> dict[str, str]:
    """The variables of an argument env=; TypeError for one that is not text."""
    for name, value in (env or {}).items():
        if not isinstance(value, (str, bytes, os.PathLike)):
            raise TypeError(f"env[{name!r}]={value!r}: expected text")
    return env or {}


def _some(ranks):
    """A list of ranks as text, shortened if it is long."""
    return f"{ranks[:16]} and {len(ranks) - 16} more" if len(ranks) > 16 else str(ranks)


class Finished:
    """A job that has ended."""

    def __init__(self, code: int, outcomes: dict[int, tuple[str, Any]], reason: str) -> None:
        self._code, self._outcomes, self._reason = code, outcomes, reason

    def results(self, count: int | None = None) -> list[Any]:
        """The results of the ranks 0..count-1 by rank; without a count, of all ranks that returned. Raises JobFailed
        if one of them is missing."""
        if self._code != 0 or not self._outcomes:
            for kind, value in self._outcomes.values():  # in the order of arrival
                if kind == "error":
                    raise value
        # An elastic job may succeed although a rank failed: others have replaced it.
        returned = {rank: value for rank, (kind, value) in self._outcomes.items() if kind == "ok"}
        if count is None:
            count = max(returned, default=0) + 1
        missing = [rank for rank in range(count) if rank not in returned]
        if self._code != 0:
            raise JobFailed(
                f"the job failed with exit code {self._code}"
                + (f"; no result from ranks {_some(missing)}" if missing else "")
                + (f"\n{self._reason}" if self._reason else "")
            )
        for rank in missing:
            if rank in self._outcomes:
                raise self._outcomes[rank][1]
        if missing:
            raise JobFailed(f"the job ended, but no result from ranks {_some(missing)}")
        return [returned[rank] for rank in range(count)]


def carry_out(
    payload: bytes,
    arguments: Sequence[str],
    variables: dict[str, str],
    addresses: Sequence[str],
    stdout: Any = None,
    stderr: Any = None,
    watcher: Watcher | None = None,
) -> Finished:
    """Runs a job whose ranks fetch the payload of encode_call() here and send back their results. `arguments` are those
    of the launcher, with the command of the ranks at the end; `variables` is its whole environment; `addresses` are
    those of this process for the ranks."""
    watcher = watcher or Watcher()
    everywhere = list(addresses) != ["127.0.0.1"]
    with contextlib.closing(_ResultServer(payload, everywhere, watcher)) as server, _Report() as report:
        variables = {
            **variables,
            "HORA_RUN_ADDRESS": ",".join(addresses),
            "HORA_RUN_PORT": str(server.port),
            "HORA_RUN_KEY": server.key.hex(),
        }
        # A job whose caller was killed has no use: it ends with it. A --report among the caller's options wins; of
        # ranks that mpirun starts there is none.
        own = ["--end-with", str(os.getpid())]
        if "--mpi" not in arguments and "HORARUN_MPI" not in variables:
            own += ["--report", f"/proc/self/fd/{report.fd}"]
        code = _call(
            [find_horarun(), *own, *arguments],
            watcher,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[report.fd],
        )
    reason = report.text()
    if code == _USAGE and not reason:
        reason = _usage_error(arguments, variables)
    return Finished(code, server.outcomes, reason)


def encode_call(func: Any, args: Any, kwargs: Any, np: Any, name: str) -> bytes:
    """The call as bytes for the ranks. ValueError or TypeError for wrong arguments; `name` is the caller's name for
    np."""
    check_call(func, args, kwargs, np, name)
    return serialization.dumps(
        (rank_error.with_sources(func), tuple(args), dict(kwargs or {})),
        f"the function {getattr(func, '__qualname__', func)!r} with its arguments",
    )


def check_call(func: Any, args: Any, kwargs: Any, np: Any, name: str) -> None:
    """ValueError or TypeError for wrong arguments; `name` is the caller's name for the number of ranks."""
    if not callable(func):
        raise TypeError(f"run() calls a function on every rank; {func!r} is not callable")
    if isinstance(args, (str, bytes)) or not hasattr(args, "__iter__"):
        raise TypeError(f"args={args!r}: expected a tuple or a list of arguments")
    if not isinstance(kwargs or {}, dict):
        raise TypeError(f"kwargs={kwargs!r}: expected a dict of arguments")
    if isinstance(np, bool) or not hasattr(np, "__index__") or np < 1:
        raise ValueError(f"{name}={np!r}: expected a number of ranks, 1 or more")
