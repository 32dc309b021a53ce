# SPDX-License-Identifier: Apache-2.0
"""What horarun starts on every rank for hora.run(): fetches the function, calls it, sends back
what it returned or how it failed."""

from __future__ import annotations

import os
import socket
import sys
import traceback


def main() -> None:
    from hora import channel, serialization
    from hora.exceptions import RemovedFromJob
    from hora.launch import encode_outcome

    key = bytes.fromhex(os.environ.pop("HORA_RUN_KEY"))
    port = int(os.environ.pop("HORA_RUN_PORT"))
    address = os.environ.pop("HORA_RUN_ADDRESS", "") or os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR") or "127.0.0.1"
    with socket.create_connection((address, port), timeout=30) as connection:
        link = channel.Channel(connection, key, is_server=False)
        payload = link.receive()
        connection.settimeout(None)
        code: str | int = 0
        try:
            func, args, kwargs = _unpack(payload, serialization)
            kind, body = (
                b"R",
                serialization.dumps(func(*args, **kwargs), f"the result of {getattr(func, '__qualname__', func)!r}"),
            )
        except RemovedFromJob:
            raise  # the job goes on without this process, whose result nobody waits for
        except (Exception, SystemExit) as error:
            kind, body = b"E", traceback.format_exc().encode()
            code = error.code if isinstance(error, SystemExit) and error.code else 1
        link.send(encode_outcome(kind, _rank(), body))
        connection.settimeout(30)
        link.receive()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def _rank():
    """This process's rank as it is now: in an elastic job it may be another than at the start."""
    from hora import basics

    return basics.rank() if basics.is_initialized() else int(os.environ.get("HOROVOD_RANK", "0"))


def _unpack(payload, serialization):
    """(function, args, kwargs). Its modules may lie where the caller looked for them."""
    caller_path = os.environ.pop("HORA_RUN_PATH", "")
    for folder in filter(None, caller_path.split(os.pathsep)):
        if folder not in sys.path and os.path.isdir(folder):
            sys.path.append(folder)
    return serialization.loads(payload, "the function that the caller sent")


if __name__ == "__main__":
    main()
