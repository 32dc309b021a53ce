# SPDX-License-Identifier: Apache-2.0
"""What `import hora` offers besides the collectives: waiting for one another, leaving the collectives, a new job."""

from __future__ import annotations

from hora import operations
from hora.process_sets import global_process_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from hora.process_sets import ProcessSet


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until every rank of the set has called it, without a time limit.

    Raises HorovodInternalError if a rank is lost, NotInitializedError before init(), and ValueError or TypeError for
    what is not a registered set.
    """
    operations.barrier(process_set)


def join() -> int:
    """Declares that this rank has no more data, and waits for the others.

    Until every rank of the job has joined, this one takes part in their reductions with zeros. Returns the rank that
    joined last. Blocks until all have joined, without a time limit. Raises HorovodInternalError if a rank is lost,
    and NotInitializedError before init().
    """
    return operations.join(global_process_set)


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    np: int = 1,
    hosts: str | None = None,
    hostfile: str | None = None,
    **launch_options: Any,
) -> list[Any]:
    """Calls func(*args, **kwargs) on every rank of a new job of np ranks; returns the results by rank.

    Blocks until the job has ended. hora.launch.run describes the arguments and what it raises.
    """
    from hora.launch import run as launch

    return launch(func, args, kwargs, np, hosts, hostfile, **launch_options)
