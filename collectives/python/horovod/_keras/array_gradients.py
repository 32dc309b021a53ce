# SPDX-License-Identifier: Apache-2.0
"""Reducing the gradients of backends that have dense gradients only (JAX, PyTorch), and those of JAX."""

from __future__ import annotations

from hora.reducer import GradientReducer
from horovod._keras.compression import compression_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class ArrayReducer(GradientReducer):
    """How gradients are reduced; subclasses say how a list of lists of them is."""

    def __init__(self, prefix: str, compression: Any = None, **options: Any) -> None:
        super().__init__(prefix, compression=compression_name(compression), **options)

    def reduce_chosen(self, chosen: Sequence[int], variables: Any, results: list[Any]) -> None:
        """Replaces the gradients at the chosen positions of results by the reduced ones. Collective."""
        units = self.units(chosen, variables)
        reduced = self.reduce_units(
            [[results[index] for index in unit] for unit in units], [f"{self.prefix}.{unit[0]}" for unit in units]
        )
        for unit, values in zip(units, reduced):
            for index, value in zip(unit, values):
                results[index] = value

    def reduce_units(self, units: Sequence[Sequence[Any]], names: Sequence[str]) -> Any:
        """Lists of reduced gradients for lists of gradients; the members of each list run
        together, and have the list's name."""
        raise NotImplementedError


class JaxReducer(ArrayReducer):
    """Reduces the gradients of Keras's JAX backend, also inside jit."""

    def reduce_units(self, units: Sequence[Sequence[Any]], names: Sequence[str]) -> Any:
        """The reduced gradients of each unit, all in flight at once. Collective."""
        from hora.jax_operations import allreduce_units

        return allreduce_units(units, names, self.op, self.prescale, self.postscale, self.process_set, self.compression)
