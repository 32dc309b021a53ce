# SPDX-License-Identifier: Apache-2.0
"""How gradients are reduced on each backend of Keras. Frameworks are imported only for their own backend."""

from __future__ import annotations

from hora.reducer import GradientReducer
from horovod._keras.compression import Compression, compression_name

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


def make_reducer(backend: Any, prefix: str, options: dict[str, Any]) -> Any:
    """The object with reduce(gradients, variables), register_local and densify for a backend."""
    if backend == "tensorflow":
        from horovod.tensorflow.compression import Compression as TensorFlowCompression
        from horovod.tensorflow.gradients import GradientReducer as TensorFlowReducer

        return TensorFlowReducer(prefix, **_with_compression(options, TensorFlowCompression))
    if backend == "torch":
        from horovod._keras.torch_gradients import TorchReducer

        return TorchReducer(prefix, **options)
    if backend == "jax":
        return JaxReducer(prefix, **options)
    raise ValueError(f"gradients of Keras's backend {backend} cannot be reduced; use tensorflow, jax or torch")


def _with_compression(options, choices):
    compression = options.get("compression")
    if compression is None or isinstance(compression, str) or compression in vars(Compression).values():
        options = dict(options, compression=getattr(choices, compression_name(compression)))
    return options
