# SPDX-License-Identifier: Apache-2.0
"""Trees of arrays as state that survives a change of the ranks."""

from __future__ import annotations

import jax

from hora import basics, elastic, objects
from hora.exceptions import from_text
from hora.jax import broadcast_parameters
from hora.jax_operations import ProgramError, recover

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _translate(error):
    """Our own error, where one of our callbacks in a compiled program failed."""
    if not isinstance(error, ProgramError):
        return None
    recover()
    return from_text(str(error))


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: makes func(state, ...) survive changes of the ranks. hora.elastic.run describes when it starts
    again, how long that blocks, and what it raises. An error of one of our callbacks in a compiled program counts
    as the error that it stands for."""
    return elastic.run_fn(func, elastic.reset_job, _translate)


class JaxState(elastic.ObjectState):
    """JaxState(params=..., opt_state=..., epoch=0): every value is a tree of arrays and objects.
    Arrays do not change, so that saving keeps references."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(objects.broadcast_object, basics.rank, **kwargs)

    def save(self) -> None:
        """Keeps the arrays of every tree, which never change, and deep copies of the other leaves."""
        self._saved_state = {name: jax.tree_util.tree_map(_own_copy, getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Sets every tree to the saved one."""
        for name, value in self._saved_state.items():
            setattr(self, name, jax.tree_util.tree_map(_own_copy, value))

    def sync(self) -> None:
        """Sets every tree to rank 0's, and saves it. The trees have one structure on all ranks. Collective."""
        for name in sorted(self._saved_state):
            setattr(self, name, broadcast_parameters(getattr(self, name), 0, f"elastic.{name}"))
        self.save()


def _own_copy(leaf):
    import copy

    return leaf if isinstance(leaf, jax.Array) else copy.deepcopy(leaf)
