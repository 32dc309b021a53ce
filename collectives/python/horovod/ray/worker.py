# SPDX-License-Identifier: Apache-2.0
"""What runs in each actor: one rank of the job."""

from __future__ import annotations

import os
import socket
import sys

import ray

from hora import clusters, rendezvous

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class BaseHorovodWorker:
    """One rank. It keeps an object of the user's class (the executable) and calls functions with it."""

    def __init__(self) -> None:
        self.executable: Any = None

    def node_id(self) -> str:
        """Ray's id of the node."""
        return ray.get_runtime_context().get_node_id()

    def hostname(self) -> str:
        """The host name of the node."""
        return socket.gethostname()

    def node_address(self) -> str:
        """The node's IP address, as Ray knows it."""
        return ray.util.get_node_ip_address()

    def process_id(self) -> int:
        """The process id of the actor."""
        return os.getpid()

    def get_gpu_ids(self) -> list[str]:
        """The GPUs that Ray gave to this actor."""
        return [str(each) for each in ray.get_gpu_ids()]

    def free_port(self) -> int:
        """A TCP port that was free on the node when this was called."""
        return rendezvous.free_port()

    def update_env_vars(self, env_vars: dict[str, Any]) -> None:
        """Sets environment variables of the actor; values become text."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})
        clusters.offer()

    def env_vars(self) -> dict[str, str]:
        """A copy of the actor's environment."""
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Makes executable_cls(*executable_args, **executable_kwargs), for later calls."""
        if executable_cls is not None:
            self.executable = self._call(lambda: executable_cls(*executable_args or (), **executable_kwargs or {}))

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """func(executable)"""
        return self._call(lambda: func(self.executable))

    def leave(self) -> None:
        """Leaves the job, if it has joined one: the others' operations fail instead of waiting for it."""
        basics = sys.modules.get("hora.basics")
        if basics is not None:
            basics.shutdown()

    def _call(self, function):
        try:
            return function()
        except SystemExit as left:
            self.leave()
            # Ray would take it for the wish to end the actor, and lose the reason.
            raise RuntimeError(f"the function on rank {_rank()} called sys.exit({left.code!r})") from left
        except BaseException as failure:
            self.leave()
            if hasattr(failure, "add_note"):  # Python 3.11
                failure.add_note(f"This happened on rank {_rank()}, on {socket.gethostname()}.")
            raise


def _rank():
    return os.environ.get("HOROVOD_RANK", "?")
