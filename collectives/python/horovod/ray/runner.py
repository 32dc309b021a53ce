# SPDX-License-Identifier: Apache-2.0
"""RayExecutor: a job whose ranks are actors of Ray. They live, with what they hold, from start() to
shutdown(), and run one function after another."""

from __future__ import annotations

import contextlib
import logging
import time
import weakref

import ray
import ray.util.placement_group
import ray.util.scheduling_strategies

from hora import rank_error, rendezvous
from hora.elastic_job import Limits
from horovod.ray.elastic import ElasticJob, Resources
from horovod.ray.placement import Placement, Request, check_connection
from horovod.ray.worker import BaseHorovodWorker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_log = logging.getLogger(__name__)

# How long ranks may take to notice that the run which failed has ended, beyond the time in which they
# look for each other.
_IDLE_SECONDS = 10


class Settings:
    """See RayExecutor.create_settings()."""

    def __init__(
        self,
        timeout_s: int = 30,
        placement_group_timeout_s: int = 100,
        nics: set[str] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.placement_group_timeout_s = placement_group_timeout_s
        self.nics = nics


class Coordinator:
    """The places and the rendezvous of ranks that a program starts itself, such as Ray Train: it registers each rank,
    and gives it the variables of finalize_registration() and establish_rendezvous()."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.hostnames: dict[str, list[int]] = {}  # the ranks of each node, whose name is its hostname or its id
        self._ranks: dict[int, tuple[str, str]] = {}  # rank -> (hostname, id of the node)

    @property
    def world_size(self) -> int:
        """The number of workers that have registered."""
        return len(self._ranks)

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        """Notes on which node a worker is."""
        self._ranks[world_rank] = hostname, node_id

    def finalize_registration(self) -> dict[int, dict[str, str]]:
        """The variables of each rank, once all are registered."""
        ranks = sorted(self._ranks)
        if ranks != list(range(len(ranks))):
            raise ValueError(f"Coordinator.finalize_registration: the ranks are {ranks}, not 0 to {len(ranks) - 1}")
        nodes = [self._ranks[rank][1] for rank in ranks]
        places = rendezvous.assign_ranks(nodes)
        for rank, place in zip(ranks, places):
            place.rank = rank
            self.hostnames.setdefault(self._name(rank), []).append(rank)
        return {place.rank: place.environment() for place in places}

    def _name(self, rank):
        """Several nodes of one machine, as tests have them, share its name."""
        hostname, node_id = self._ranks[rank]
        shared = any(name == hostname and node != node_id for name, node in self._ranks.values())
        return node_id if shared else hostname

    def establish_rendezvous(self) -> dict[str, str]:
        """Starts the rendezvous server, which ends with this object, and returns the variables that all ranks share."""
        met = rendezvous.Rendezvous(ray.util.get_node_ip_address())
        weakref.finalize(self, met.close)
        return {**met.shared_environment(), "HOROVOD_GLOO_TIMEOUT_SECONDS": str(self.settings.timeout_s)}


class RayExecutor:
    """A job of num_workers ranks, or of num_hosts x num_workers_per_host.

    cpus_per_worker, gpus_per_worker (with use_gpu) are reserved for each rank, within the caller's
    placement group if there is one and use_current_placement_group does not forbid it.

    With min_workers or max_workers the job is elastic: it starts with num_workers ranks (default:
    min_workers), and has as many as there is room for. reset_limit is the largest number of changes,
    elastic_timeout the seconds to wait for min_workers of them. Each run has actors of its own then,
    outside of placement groups.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: int = 100,
        nics: set[str] | None = None,
    ) -> Settings:
        """timeout_s: in which the ranks find each other. placement_group_timeout_s: in which Ray finds
        room and starts the actors. nics: the network interfaces for the traffic between ranks, of
        which the first is used. The keys of ssh are not needed."""
        return Settings(timeout_s, placement_group_timeout_s, nics)

    def __init__(
        self,
        settings: Any = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        self.settings = settings if settings is not None else self.create_settings()
        self._elastic: ElasticJob | None = None
        if min_workers is not None or max_workers is not None:
            if num_hosts is not None:
                raise ValueError("num_hosts belongs to a fixed number of ranks; give min_workers and max_workers only")
            count = num_workers or min_workers or 1
            timeouts = elastic_timeout, elastic_timeout
            limits = Limits(count, min_workers, max_workers, *timeouts, reset_limit, cooldown_range)
            resources = Resources(cpus_per_worker, use_gpu, gpus_per_worker)
            self._elastic = ElasticJob(limits, resources, self.settings.nics)
            num_workers = count
        self._request = Request(num_workers, num_hosts, num_workers_per_host, cpus_per_worker, use_gpu, gpus_per_worker)
        self._use_current = use_current_placement_group
        self._extra: dict[str, str] = {}
        self._resources = contextlib.ExitStack()
        self._meeting: rendezvous.Rendezvous | None = None
        self.workers: list[Any] = []  # the actors, by rank
        self._places: list[rendezvous.RankPlacement] = []
        self._shared: dict[str, str] = {}
        self._running: dict[Any, int] = {}  # what a run that failed left under way: reference -> rank
        self._must_meet_again = False

    @property
    def num_workers(self) -> int:
        """The number of workers, one rank each."""
        return self._request.num_workers

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: dict[str, Any] | None = None,
        extra_env_vars: dict[str, Any] | None = None,
    ) -> None:
        """Starts the actors. Each makes its own executable_cls(*executable_args, **executable_kwargs).

        extra_env_vars are environment variables for the actors. Blocks until all have started. Raises TimeoutError
        after placement_group_timeout_s, RuntimeError if it has been called before, and what executable_cls raises.
        """
        if self._elastic is not None:
            return self._elastic.start(executable_cls, executable_args, executable_kwargs, extra_env_vars)
        if self.workers:
            raise RuntimeError("this RayExecutor has been started before; shutdown() ends it")
        check_connection()
        self._extra = {name: str(value) for name, value in (extra_env_vars or {}).items()}
        try:
            self._start_actors()
            self._meet()
            calls = [
                worker.start_executable.remote(executable_cls, executable_args, executable_kwargs)
                for worker in self.workers
            ]
            self._gather(calls)
        except BaseException:
            self.shutdown()
            raise

    def _start_actors(self):
        timeout_s = self.settings.placement_group_timeout_s
        placement = Placement(self._request, self._use_current, timeout_s)
        self._resources.callback(placement.close)
        actor = ray.remote(BaseHorovodWorker)
        workers = []
        self._resources.callback(_end, workers)
        for index in range(self.num_workers):
            workers.append(actor.options(max_concurrency=1, **placement.options(index)).remote())
        try:
            nodes = ray.get([worker.node_id.remote() for worker in workers], timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(
                f"Ray did not start {len(workers)} actors within {timeout_s} s (placement_group_timeout_s)"
            ) from error
        addresses = ray.get([worker.node_address.remote() for worker in workers])
        # Several nodes of one machine, as tests have them, share its address.
        machines = dict(zip(nodes, addresses))
        shared = len(set(machines.values())) < len(machines)
        names = [f"{address}-{node[:8]}" if shared else address for node, address in zip(nodes, addresses)]
        placed = sorted(zip(rendezvous.assign_ranks(names), workers), key=lambda each: each[0].rank)
        self._places = [place for place, _ in placed]
        self.workers = [worker for _, worker in placed]
        self._shared = {
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(self.settings.timeout_s),
            "MASTER_ADDR": machines[ray.get(self.workers[0].node_id.remote())],
        }
        if self.settings.nics:
            self._shared["HOROVOD_GLOO_IFACE"] = sorted(self.settings.nics)[0]

    def _meet(self):
        """Gives the ranks a new rendezvous: those of a run that failed may not all have joined equally often."""
        if self._meeting is not None:
            self._meeting.close()
        else:
            self._resources.callback(self._close_meeting)
        self._meeting = rendezvous.Rendezvous(ray.util.get_node_ip_address())
        shared = {**self._shared, "MASTER_PORT": str(ray.get(self.workers[0].free_port.remote()))}
        gpus = self._visible_gpus()
        updates = []
        for worker, place in zip(self.workers, self._places):
            variables = {**shared, **self._meeting.environment(place), **gpus.get(place.host, {}), **self._extra}
            updates.append(worker.update_env_vars.remote(variables))
        ray.get(updates)

    def _visible_gpus(self):
        """Variables by host. Each rank sees all GPUs of its host's ranks, those by local rank first, as
        torch.cuda.set_device(hvd.local_rank()) takes for granted."""
        if not self._request.gpus:
            return {}
        given: dict[str, list[list[str]]] = {}
        for place, gpus in zip(self._places, ray.get([worker.get_gpu_ids.remote() for worker in self.workers])):
            given.setdefault(place.host, []).append(gpus)
        return {
            host: {"CUDA_VISIBLE_DEVICES": ",".join([g for turn in zip(*lists) for g in turn])}
            for host, lists in given.items()
        }

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callbacks: Any = None,
    ) -> list[Any]:
        """Calls fn(*args, **kwargs) on every rank; returns the results by rank.

        Blocks until all ranks have returned. A failure is raised as ray.get() would raise it: as an exception of the
        class that the function raised, with its traceback. RuntimeError before start().
        """
        if self._elastic is not None:
            return self._elastic.run(fn, args, kwargs, callbacks)
        _check_callbacks(callbacks)
        return self._gather(self.run_remote(fn, args, kwargs))

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """Like run(), but does not block: returns references for ray.get(), by rank. Not in elastic jobs:
        ValueError."""
        self._need_fixed_ranks("run_remote")
        return self._submit(_Call(fn, args, kwargs))

    def execute(self, fn: Callable[[Any], Any], callbacks: Any = None) -> list[Any]:
        """Calls fn(executable) on every rank; returns the results by rank. Blocks and raises as run() does."""
        if self._elastic is not None:
            return self._elastic.execute(fn, callbacks)
        _check_callbacks(callbacks)
        return self._gather(self._submit(fn))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls fn(executable) on rank 0 alone; returns its result. Blocks and raises as run() does. Not in elastic
        jobs: ValueError."""
        self._need_fixed_ranks("execute_single")
        self._make_ready()
        return self._gather([self.workers[0].execute.remote(fn)])[0]

    def shutdown(self) -> None:
        """Ends the actors and gives back what was reserved."""
        if self._elastic is not None:
            self._elastic.shutdown()
        self._resources.close()
        self._meeting = None
        self.workers, self._places, self._running = [], [], {}
        self._must_meet_again = False

    def _need_fixed_ranks(self, name):
        if self._elastic is not None:
            raise ValueError(
                f"{name}() needs ranks that stay; with min_workers or max_workers, use run() and execute()"
            )

    def _close_meeting(self):
        if self._meeting is not None:
            self._meeting.close()

    def _submit(self, fn):
        self._make_ready()
        function = ray.put(fn)  # once, not with each call
        return [worker.execute.remote(function) for worker in self.workers]

    def _make_ready(self):
        if not self.workers:
            raise RuntimeError("this RayExecutor has no actors: call start() first")
        if self._running:
            limit = self.settings.timeout_s + _IDLE_SECONDS
            _, busy = ray.wait(list(self._running), num_returns=len(self._running), timeout=limit)
            if busy:
                raise RuntimeError(
                    f"ranks {sorted(self._running[each] for each in busy)} are still in the function of the run that "
                    f"failed, {limit} s later: shutdown() ends them, start() starts new ones"
                )
            self._running = {}
        if self._must_meet_again:
            ray.get([worker.leave.remote() for worker in self.workers])
            self._meet()
            self._must_meet_again = False

    def _gather(self, references):
        """Returns the results by rank, or raises the first exception. That of a rank that failed because it lost
        another one is raised only if no other follows within CAUSE_SECONDS."""
        self._running = {reference: rank for rank, reference in enumerate(references)}
        results: list[Any] = [None] * len(references)
        failure: Exception | None = None
        failed_rank = 0
        deadline = None
        while self._running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=left)
            if not done:
                break
            rank = self._running.pop(done[0])
            try:
                results[rank] = ray.get(done[0])
            except Exception as error:
                consequence = _is_consequence(error)
                if failure is None or not consequence:
                    failure, failed_rank = error, rank
                if not consequence:
                    break
                deadline = deadline or time.monotonic() + rendezvous.CAUSE_SECONDS
        if failure is not None:
            self._must_meet_again = True
            self._report(failed_rank, failure)
            failure.rank = failed_rank
            cause = getattr(failure, "cause", None)  # the exception that the function raised
            if failure.__cause__ is None and isinstance(cause, BaseException):
                failure.__cause__ = cause
            raise failure
        self._running = {}
        return results

    def _report(self, rank, error):
        place = self._places[rank]
        if isinstance(error, ray.exceptions.RayActorError):
            text = f"The process of rank {rank} on {place.host} has ended."
            _log.error(text)
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(text)
        else:
            cause = getattr(error, "cause", error)
            _log.error("rank %d on %s failed: %s: %s", rank, place.host, type(cause).__name__, cause)


class _Call:
    """fn(*args, **kwargs), whatever the executable is."""

    def __init__(self, fn, args, kwargs):
        if not callable(fn):
            raise TypeError(f"run() calls a function on every rank; {fn!r} is not callable")
        self._fn, self._args, self._kwargs = rank_error.with_sources(fn), tuple(args or ()), dict(kwargs or {})

    def __call__(self, executable):
        return self._fn(*self._args, **self._kwargs)


def _check_callbacks(callbacks):
    if callbacks:
        raise ValueError("callbacks= needs an elastic job: min_workers or max_workers")


def _is_consequence(error):
    """Whether a rank failed because another one did."""
    from hora.exceptions import HorovodInternalError

    return isinstance(error, HorovodInternalError)


def _end(workers):
    for worker in workers:
        with contextlib.suppress(Exception):  # it has ended, or the connection to Ray has
            ray.kill(worker)
