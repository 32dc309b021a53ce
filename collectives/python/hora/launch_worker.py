# SPDX-License-Identifier: Apache-2.0
"""The program that horarun starts on every rank for hora.run(): fetches the function, calls it, and sends back its
result or its error."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time


def main() -> None:
    """Runs this rank of hora.run, and exits with its code."""
    sys.exit(work())


def work() -> str | int:
    """Runs this rank of hora.run; returns the exit code once the caller has the outcome."""
    from hora import forked, rank_error, serialization
    from hora.exceptions import RemovedFromJob
    from hora.launch import encode_outcome

    key = bytes.fromhex(os.environ.pop("HORA_RUN_KEY"))
    port = int(os.environ.pop("HORA_RUN_PORT"))
    with contextlib.ExitStack() as stack:
        connection, link = stack.enter_context(_connect_to_caller(port, key))
        # Function and result may be large, and of many ranks at a time. If the caller ends, the connection closes.
        connection.settimeout(None)
        payload = link.receive()
        at_start = _rank(otherwise=0)
        code: str | int = 0
        try:
            func, args, kwargs = _unpack(payload, serialization)
            name = getattr(func, "__qualname__", func)
            kind, body = b"R", serialization.dumps(forked.call(func, args, kwargs), f"the result of {name!r}")
        except RemovedFromJob:
            raise  # the job continues without this process and its result
        except (Exception, SystemExit) as error:
            kind, body = b"E", rank_error.encode(error)
            code = error.code if isinstance(error, SystemExit) and error.code else 1
        link.send(encode_outcome(kind, _rank(at_start), body))
        link.receive()
    return code


def _caller_addresses():
    """Addresses of the caller, the most likely one first. mpirun does not pass on which of them works from here;
    SSH_CONNECTION has the address that started the processes of this host."""
    given = os.environ.pop("HORA_RUN_ADDRESS", "").split(",")
    launcher = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")
    starter = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    known = given if given == ["127.0.0.1"] else [launcher, starter, *given, "127.0.0.1"]
    return list(dict.fromkeys(address for address in known if address))


@contextlib.contextmanager
def _connect_to_caller(port, key):
    """(connection, channel) to the caller. Another host may have one of its addresses and listen on that port, but only
    the caller has the key."""
    from hora import channel

    deadline = time.monotonic() + 30
    addresses = _caller_addresses()
    failures = []
    for position, address in enumerate(addresses):
        left = (deadline - time.monotonic()) / (len(addresses) - position)
        try:
            connection = socket.create_connection((address, port), timeout=max(1.0, left))
        except OSError as error:
            failures.append(f"{address}: {error}")
            continue
        with connection:
            try:
                link = channel.Channel(connection, key, is_server=False)
            except (OSError, channel.ChannelError) as error:
                failures.append(f"{address}: {error}")
                continue
            yield connection, link
            return
    raise ConnectionError(f"the caller of run() cannot be reached at port {port}: " + "; ".join(failures))


# The rank of a process, as set by horarun, mpirun of Open MPI, other launchers with PMI and PMIx, and srun.
_RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def _rank(otherwise):
    """The current rank of this process; in an elastic job it may have changed since the start. The function may have
    cleared the environment."""
    from hora import basics

    if basics.is_initialized():
        return basics.rank()
    return next((int(os.environ[name]) for name in _RANK_VARIABLES if name in os.environ), otherwise)


def _unpack(payload, serialization):
    """(function, args, kwargs). Its modules are also looked for on the module path of the caller."""
    caller_path = os.environ.pop("HORA_RUN_PATH", "")
    for folder in filter(None, caller_path.split(os.pathsep)):
        if folder not in sys.path and os.path.isdir(folder):
            sys.path.append(folder)
    return serialization.loads(payload, "the function that the caller sent")


if __name__ == "__main__":
    main()
