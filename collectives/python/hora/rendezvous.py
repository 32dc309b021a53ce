# SPDX-License-Identifier: Apache-2.0
"""For ranks that an engine starts itself (actors of Ray, tasks of Spark): their numbers, and a rendezvous server.
horarun provides both for the ranks that it starts."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import tempfile
import time

from hora import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# How long to wait for the cause after a rank has failed only because another one did.
CAUSE_SECONDS = 3
# How long the server may take to listen.
_START_SECONDS = 30
_LISTENING = "rendezvous: listening on "


class RankPlacement:
    """The numbers of one rank in the job and on its host."""

    def __init__(self, rank: int, size: int, host: str, host_index: int) -> None:
        self.rank, self.size = rank, size
        self.host, self.host_index = host, host_index
        self.local_rank = self.cross_rank = 0
        self.local_size = self.cross_size = 1

    def environment(self) -> dict[str, str]:
        """The environment variables with these numbers (docs/reference/environment.md)."""
        numbers = {
            "HOROVOD_RANK": self.rank,
            "HOROVOD_SIZE": self.size,
            "HOROVOD_LOCAL_RANK": self.local_rank,
            "HOROVOD_LOCAL_SIZE": self.local_size,
            "HOROVOD_CROSS_RANK": self.cross_rank,
            "HOROVOD_CROSS_SIZE": self.cross_size,
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_size,
            "GROUP_RANK": self.host_index,
        }
        return {"HOROVOD_HOSTNAME": self.host, **{name: str(number) for name, number in numbers.items()}}


def assign_ranks(hosts: Sequence[str]) -> list[RankPlacement]:
    """The placement of each worker, given the host of each. The ranks of a host are consecutive, in the order of its
    workers; hosts are in the order of their first workers."""
    names = list(dict.fromkeys(hosts))
    workers = {name: [index for index, host in enumerate(hosts) if host == name] for name in names}
    places = [RankPlacement(0, len(hosts), host, names.index(host)) for host in hosts]
    rank = 0
    for name in names:
        for local_rank, index in enumerate(workers[name]):
            # The hosts that have as many workers as it takes to have one with this local rank.
            peers = [other for other in names if len(workers[other]) > local_rank]
            place = places[index]
            place.rank, place.local_rank, place.local_size = rank, local_rank, len(workers[name])
            place.cross_rank, place.cross_size = peers.index(name), len(peers)
            rank += 1
    return places


def free_port() -> int:
    """A port of this host that nothing listens on now, for MASTER_PORT."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


class Rendezvous:
    """The rendezvous server of one job. It runs until close(), or until this process ends.

    address is a name or an address of this machine that the ranks can connect to. Clients need the token of the
    server.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._token = secrets.token_hex(16)
        self._job_id = secrets.token_hex(8)
        self._process, self.port = _serve(_listen_address(address), self._token)

    def environment(self, place: RankPlacement) -> dict[str, str]:
        """The environment variables with which a rank joins. They hold a secret: do not put them on a command line."""
        return {**place.environment(), **self.shared_environment()}

    def shared_environment(self) -> dict[str, str]:
        """Those of environment() that are the same for all ranks."""
        return {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self.address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port),
            "HORA_JOB_ID": self._job_id,
            "HORA_RENDEZVOUS_TOKEN": self._token,
        }

    def close(self) -> None:
        """Ends the rendezvous server."""
        self._process.kill()  # it has no files or children
        self._process.wait()

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _listen_address(address):
    """The numeric address to listen on: all, where the ranks reach this machine by another (a forwarded port)."""
    numeric = socket.getaddrinfo(address, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    return numeric if numeric.startswith("127.") or numeric in launch.local_addresses() else "0.0.0.0"


def _serve(address, token):
    """(process, port) of a server that ends with this process, also when that is killed."""
    command = [launch.find_horarun(), "rendezvous", "--address", address, "--end-with", str(os.getpid())]
    with contextlib.ExitStack() as stack:
        token_from, token_to = os.pipe()
        stack.callback(os.close, token_from)
        os.write(token_to, token.encode() + b"\n")  # short: a pipe takes it at once
        os.close(token_to)
        errors = stack.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            [*command, "--token-file", f"/proc/self/fd/{token_from}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=[token_from],
            start_new_session=True,  # Ctrl-C is for this process, which ends the server when it is done
        )
        assert process.stdout is not None
        with process.stdout:
            line = _first_line(process.stdout.fileno())
        if line.startswith(_LISTENING):
            return process, int(line.rsplit(":", 1)[1])
        process.kill()
        process.wait()
        errors.seek(0)
        text = errors.read().decode(errors="replace").strip()
        raise RuntimeError(
            f"the rendezvous server did not start to listen on {address} within {_START_SECONDS} s: {text or line}"
        )


def _first_line(fd):
    """What has come until the end of a line, the end of the file, or the deadline."""
    deadline = time.monotonic() + _START_SECONDS
    got = b""
    while not got.endswith(b"\n"):
        ready, _, _ = select.select([fd], [], [], max(0, deadline - time.monotonic()))
        more = os.read(fd, 4096) if ready else b""
        if not more:
            break
        got += more
    return got.decode(errors="replace").strip()
