# SPDX-License-Identifier: Apache-2.0
"""Where the actors of a job run: the resources to ask Ray for, and asking."""

from __future__ import annotations

import ray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check_connection() -> None:
    """Raises what stands in the way of actors."""
    if not ray.is_initialized():
        raise RuntimeError("an executor of Ray needs a connection to it: call ray.init() first")
    if ray.util.client.ray.is_connected():
        raise RuntimeError(
            "executors cannot be used through Ray Client (ray://...), because their ranks meet in the process "
            "that starts them: use them inside of a remote function, or submit the program with `ray job submit`"
        )


def room_text() -> str:
    """What Ray has, for messages."""
    return f"Its hosts have, in all: {_hosts_text()}. Free now: {_amounts(ray.available_resources())}"


class Request:
    """The number of workers, and the resources of each. With num_hosts, every host has the same number."""

    def __init__(
        self,
        num_workers: int | None,
        num_hosts: int | None,
        num_workers_per_host: int,
        cpus_per_worker: int,
        use_gpu: bool,
        gpus_per_worker: int | None,
    ) -> None:
        if (num_workers is None) == (num_hosts is None):
            raise ValueError(
                f"RayExecutor(num_workers={num_workers}, num_hosts={num_hosts}): give one of the two; "
                "num_workers_per_host belongs to num_hosts"
            )
        if gpus_per_worker and not use_gpu:
            raise ValueError(f"gpus_per_worker={gpus_per_worker} needs use_gpu=True")
        counts = {
            "num_workers": num_workers,
            "num_hosts": num_hosts,
            "num_workers_per_host": num_workers_per_host,
            "gpus_per_worker": gpus_per_worker,
        }
        for name, count in counts.items():
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
                raise ValueError(f"{name}={count!r}: expected a number, 1 or more")
        self.num_hosts = num_hosts
        self.workers_per_bundle = num_workers_per_host if num_hosts else 1
        self.num_workers = num_workers or (num_hosts or 0) * num_workers_per_host
        self.cpus, self.gpus = cpus_per_worker, (gpus_per_worker or 1) if use_gpu else 0

    def bundles(self) -> list[dict[str, float]]:
        """What to reserve: a bundle for each host, or for each worker."""
        bundle = {"CPU": self.cpus * self.workers_per_bundle, "GPU": self.gpus * self.workers_per_bundle}
        bundle = {name: amount for name, amount in bundle.items() if amount}
        return [dict(bundle) for _ in range(self.num_workers // self.workers_per_bundle)]

    def strategy(self) -> str:
        """Hosts that the user counted are different ones; otherwise the fewer the better."""
        return "STRICT_SPREAD" if self.num_hosts else "PACK"


class Placement:
    """Reserved resources. Those of a group that was there before are used, and left to its owner."""

    def __init__(self, request: Request, use_current: bool, timeout_s: float) -> None:
        current = ray.util.get_current_placement_group() if use_current else None
        self._request = request
        self._own = None if current else _reserve(request, timeout_s)
        self._group = current or self._own

    def options(self, worker: int) -> dict[str, Any]:
        """How to start the actor of this worker."""
        strategies = ray.util.scheduling_strategies
        bundle = worker // self._request.workers_per_bundle if self._own else -1
        return {
            "num_cpus": self._request.cpus,
            "num_gpus": self._request.gpus,
            "scheduling_strategy": strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=bundle
            ),
        }

    def close(self) -> None:
        """Removes the placement group, if it was made here."""
        if self._own is not None:
            ray.util.remove_placement_group(self._own)


def _reserve(request, timeout_s):
    bundles = request.bundles()
    group = ray.util.placement_group(bundles, strategy=request.strategy())
    if group.wait(timeout_s):
        return group
    ray.util.remove_placement_group(group)
    different = " on different hosts" if request.num_hosts else ""
    raise TimeoutError(
        f"Ray had no place for {len(bundles)} x {_amounts(bundles[0])}{different} within {timeout_s} s "
        f"(placement_group_timeout_s). {room_text()}"
    )


def _hosts_text():
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return "; ".join(_amounts(resources) for resources in alive) or "none"


def _amounts(resources):
    return ", ".join(f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)) or "no CPU"
