# SPDX-License-Identifier: Apache-2.0
"""Python objects among the ranks."""

from __future__ import annotations

from hora import objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's object on every rank. See hora.broadcast_object for how long it blocks and what it raises."""
    return objects.broadcast_object(obj, root_rank, name)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks, as a list by rank. See hora.allgather_object for how long it blocks and what it
    raises."""
    return objects.allgather_object(obj, name)
