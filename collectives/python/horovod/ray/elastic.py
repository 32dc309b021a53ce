# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs whose ranks are actors of Ray, as many as there is room for."""

from __future__ import annotations

import contextlib
import threading

import ray
import ray.util.queue

from hora import elastic_job
from horovod.ray.elastic_worker import Call, ElasticWorker
from horovod.ray.placement import check_connection, room_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_PROGRAM = ["/bin/sh", "-c", f'exec "${elastic_job.PYTHON_VARIABLE}" -m hora.rank_proxy']
_END_SECONDS = 10


class Resources:
    """What Ray reserves for each rank."""

    def __init__(self, cpus: float, use_gpu: bool, gpus: float | None) -> None:
        if gpus and not use_gpu:
            raise ValueError(f"gpus={gpus} for each rank need use_gpu=True")
        self.cpus, self.gpus = cpus, (gpus or 1) if use_gpu else 0

    def capacity(self) -> int:
        """For how many ranks the nodes are large enough that are there now."""
        wanted = [("CPU", self.cpus), ("GPU", self.gpus)]
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(min(int(node.get(name, 0) // amount) for name, amount in wanted if amount) for node in nodes)


class _Actors(elastic_job.Engine):
    """Ray keeps those waiting for which there is no room; its autoscaler sees them."""

    def __init__(self, resources):
        self._resources = resources
        self.shares_devices = not resources.gpus
        self._actors = {}  # what serve() will return -> actor
        self._error = ""

    def start(self, count: int, server: tuple[str, int, bytes]) -> None:
        actor = ray.remote(ElasticWorker).options(num_cpus=self._resources.cpus, num_gpus=self._resources.gpus)
        for _ in range(count):
            worker = actor.remote()
            self._actors[worker.serve.remote(server)] = worker

    def alive(self) -> int:
        references = list(self._actors)
        ended, _ = ray.wait(references, num_returns=len(references), timeout=0) if references else ([], [])
        for reference in ended:
            try:
                ray.get(reference)
            except Exception as error:
                self._error = str(error)
            _kill(self._actors.pop(reference))
        return len(self._actors)

    def capacity(self) -> int:
        return self._resources.capacity()

    def status(self) -> str:
        return room_text() + (f". The last actor that ended: {self._error}" if self._error else "")

    def close(self) -> None:
        for actor in self._actors.values():
            _kill(actor)
        self._actors = {}


def _kill(actor):
    with contextlib.suppress(Exception):  # it has ended, or the connection to Ray has
        ray.kill(actor)


class ElasticJob:
    """Runs functions on ranks whose number is within the limits; each run has actors of its own."""

    def __init__(self, limits: elastic_job.Limits, resources: Resources, nics: set[str] | None) -> None:
        self.limits, self._resources, self._nics = limits, resources, nics
        self._started = False
        self._executable: tuple[Any, Any, Any] | None = None
        self._env: dict[str, str] = {}

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: dict[str, Any] | None = None,
        extra_env_vars: dict[str, Any] | None = None,
    ) -> None:
        """Connects to Ray, and notes what the workers are to make: executable_cls(*executable_args,
        **executable_kwargs)."""
        check_connection()
        self._started = True
        self._env = {name: str(value) for name, value in (extra_env_vars or {}).items()}
        if executable_cls is not None:
            self._executable = executable_cls, tuple(executable_args or ()), dict(executable_kwargs or {})

    def run(self, fn: Any, args: Any, kwargs: Any, callbacks: Any) -> list[Any]:
        """Calls fn(*args, **kwargs) on the ranks of an elastic job; blocks until it ends. Returns the results by
        rank."""
        return self._run(fn, args, kwargs, None, callbacks)

    def execute(self, fn: Any, callbacks: Any) -> list[Any]:
        """fn(executable), which each process makes for itself; None where start() was given no class."""
        if self._executable is None:
            return self._run(fn, (None,), None, None, callbacks)
        return self._run(fn, (), None, self._executable, callbacks)

    def shutdown(self) -> None:
        """Forgets the executable. The workers have ended with run()."""
        self._started = False
        self._executable = None

    def _run(self, fn, args, kwargs, executable, callbacks):
        if not self._started:
            raise RuntimeError("this executor of Ray has not been started: call start() first")
        if not callable(fn):
            raise TypeError(f"run() calls a function on every rank; {fn!r} is not callable")
        options = ["--network-interfaces", sorted(self._nics)[0]] if self._nics else []
        with _Reports(callbacks) as queue:
            call = Call(fn, tuple(args or ()), dict(kwargs or {}), executable, queue)
            address = ray.util.get_node_ip_address()
            engine = _Actors(self._resources)
            return elastic_job.run(engine, address, (call, (), {}), _PROGRAM, self.limits, options, self._env)


class _Reports:
    """Calls the callbacks with what rank 0 logs."""

    _END = "hora: no more"

    def __init__(self, callbacks):
        self._callbacks = callbacks
        self._queue = None

    def __enter__(self):
        if self._callbacks:
            self._queue = ray.util.queue.Queue(actor_options={"num_cpus": 0})
            self._thread = threading.Thread(target=self._listen, daemon=True)
            self._thread.start()
        return self._queue

    def _listen(self):
        while True:
            value = self._queue.get()
            if value == self._END:
                return
            for callback in self._callbacks:
                callback(value)

    def __exit__(self, *failure):
        if self._queue is not None:
            self._queue.put(self._END)  # behind all that was logged
            self._thread.join(_END_SECONDS)
            self._queue.shutdown(force=True)


class ElasticSettings:
    """See ElasticRayExecutor.create_settings()."""

    def __init__(self, limits: elastic_job.Limits, nics: set[str] | None) -> None:
        self.limits, self.nics = limits, nics


class ElasticRayExecutor:
    """An elastic job on all that Ray has, in actors with cpus_per_slot (and, with use_gpu, gpus_per_slot) each.

    executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=2), use_gpu=True)
    executor.start()
    executor.run(train)
    """

    @classmethod
    def create_settings(
        cls,
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: int = 600,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        nics: set[str] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        **others: Any,
    ) -> ElasticSettings:
        """How many ranks; the most changes of their number; how long to wait for min_num_proc of them.
        min_np and max_np are older names of min_num_proc and max_num_proc. The rest is not needed."""
        least = min_num_proc if min_np is None else min_np
        most = max_num_proc if max_np is None else max_np
        limits = elastic_job.Limits(
            least, least, most, elastic_timeout, elastic_timeout, reset_limit, cooldown_range=cooldown_range
        )
        return ElasticSettings(limits, nics)

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: dict[str, Any] | None = None,
        override_discovery: bool = True,
    ) -> None:
        self.settings = settings
        self._env = env_vars
        self._job = ElasticJob(settings.limits, Resources(cpus_per_slot, use_gpu, gpus_per_slot), settings.nics)

    def start(self) -> None:
        """Checks the connection to Ray. The actors begin with run()."""
        self._job.start(extra_env_vars=self._env)

    def run(self, worker_fn: Callable[[], Any], callbacks: Sequence[Callable[[Any], Any]] | None = None) -> list[Any]:
        """worker_fn() on the ranks; their results by rank, of those that there were in the end. Each of the
        callbacks is called with what rank 0 gives to horovod.ray.ray_logger.log()."""
        return self._job.run(worker_fn, None, None, callbacks)
