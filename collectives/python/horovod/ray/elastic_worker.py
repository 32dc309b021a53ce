# SPDX-License-Identifier: Apache-2.0
"""What runs in each actor of an elastic job: one rank, when horarun has a listener for it."""

from __future__ import annotations

import os
import sys
import threading

import ray

from hora import elastic_job, engine_host, rank_proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class ElasticWorker:
    """A process of the job, until the driver does not want it any more or the rank has ended."""

    def serve(self, server: tuple[str, int, bytes]) -> None:
        """Offers this actor to the driver as a host, and runs the rank that comes. Blocks until the driver lets it
        go."""
        listener = rank_proxy.ProxyListener()
        try:
            threading.Thread(target=self._be_a_host, args=(server, listener), daemon=True).start()
            listener.serve(_work)
        finally:
            listener.close()
        if self.error is not None:
            raise self.error

    def __init__(self) -> None:
        self.error: Exception | None = None

    def _be_a_host(self, server, listener):
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path, elastic_job.PYTHON_VARIABLE: sys.executable}
        try:
            node = ray.util.get_node_ip_address()
            engine_host.serve(*server, {"node": node}, {**environment, **listener.variables()})
        except Exception as error:
            self.error = error
        finally:
            listener.end()


def _work():
    from hora import basics, launch_worker

    try:
        return launch_worker.work()
    finally:
        basics.shutdown()


class Call:
    """What the rank calls: fn(*args, **kwargs), or fn(executable) if there is a class for one."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        executable: tuple[Callable[..., Any], Sequence[Any], dict[str, Any]] | None,
        queue: Any,
    ) -> None:
        self._fn, self._args, self._kwargs = fn, args, kwargs
        self._executable, self._queue = executable, queue
        self.__qualname__ = getattr(fn, "__qualname__", repr(fn))  # for messages

    def __call__(self) -> Any:
        from horovod.ray import ray_logger

        ray_logger.configure(self._queue)
        if self._executable is None:
            return self._fn(*self._args, **self._kwargs)
        make, args, kwargs = self._executable
        return self._fn(make(*args, **kwargs))
