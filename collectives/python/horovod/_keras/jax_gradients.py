# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras's JAX backend, inside and outside of jit."""

from __future__ import annotations

from horovod._keras.array_gradients import ArrayReducer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class JaxReducer(ArrayReducer):
    """Reduces the gradients of Keras's JAX backend, also inside jit."""

    def reduce_units(self, units: Sequence[Sequence[Any]], names: Sequence[str]) -> Any:
        """The reduced gradients of each unit, all in flight at once. Collective."""
        from hora.jax_operations import allreduce_units

        return allreduce_units(units, names, self.op, self.prescale, self.postscale, self.process_set, self.compression)
