# SPDX-License-Identifier: Apache-2.0
"""The names by which ranks match operations."""

from __future__ import annotations

import itertools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# A name that is made here must be the same on every rank of the process set. So each kind of operation and set has a
# counter of its own, which operations of other sets do not change.
_counters: dict[tuple[str, int], Iterator[int]] = {}


def operation_name(kind: str, name: str | None, process_set_id: int) -> str:
    """The name of an operation: kind.name, or kind.noname.N, where N counts the unnamed operations of this kind and
    process set."""
    if name is not None:
        return f"{kind}.{name}"
    counter = _counters.get((kind, process_set_id))
    if counter is None:
        counter = _counters.setdefault((kind, process_set_id), itertools.count())
    return f"{kind}.noname.{next(counter)}"


def forget(process_set_id: int) -> None:
    """Restarts the counters of this set: its members may have changed."""
    for key in [key for key in _counters if key[1] == process_set_id]:
        del _counters[key]


def forget_all() -> None:
    """Restarts all counters: a new job begins."""
    _counters.clear()


def derived(name: str | None, suffix: object = "grad") -> str | None:
    """The name of an operation that belongs to another one. One without a name stays without."""
    return None if name is None else f"{name}.{suffix}"
