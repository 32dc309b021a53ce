# SPDX-License-Identifier: Apache-2.0
"""Gradients of one step, reduced over the ranks together.

All of them are in flight at once, named by their position, so that ranks whose layers got other
names still agree. In a graph they start in a few parts, the last layers' first: those are ready
while the rest of the backward pass still runs.
"""

from __future__ import annotations

import tensorflow as tf

from hora import grouping, reducer
from hora.aligned_arrays import ops
from horovod.tensorflow import execution
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average, Sum, place_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# In how many parts the gradients of a graph start.
_PARTS = 4


def reference(variable: Any) -> Any:
    """What two mentions of one variable have in common, as a key."""
    inner = getattr(variable, "value", None)
    if isinstance(inner, tf.Variable):  # Keras 3 wraps a tf.Variable
        variable = inner
    return variable.ref() if hasattr(variable, "ref") else id(variable)


class GradientReducer(reducer.GradientReducer):
    """How TensorFlow's gradients are reduced, dense ones and IndexedSlices."""

    def __init__(self, prefix: str, op: int = Average, compression: Any = Compression.none, **options: Any) -> None:
        super().__init__(prefix, op, compression, **options)

    reference = staticmethod(reference)

    def densify(self, gradient: Any) -> Any:
        """The gradient as a dense tensor, if sparse_as_dense is set."""
        if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
        return gradient

    def scaled_local(self, gradient: Any) -> Any:
        """The gradient of a local variable, divided by the number of ranks."""
        members = place_now(self.process_set.size)
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(
                gradient.values / tf.cast(members, gradient.values.dtype), gradient.indices, gradient.dense_shape
            )
        return gradient / tf.cast(members, gradient.dtype)

    @tf.autograph.experimental.do_not_convert
    def reduce(self, gradients: Any, variables: Any = None) -> Any:
        """The reduced gradients, in order; None stays None. Collective."""
        return super().reduce(gradients, variables)

    # --- the work ------------------------------------------------------------------------------

    def reduce_chosen(self, chosen: Sequence[int], variables: Any, results: list[Any]) -> None:
        """Replaces the gradients at the chosen positions of results by the reduced ones. Collective."""
        gradients = list(results)
        sparse = [index for index in chosen if isinstance(gradients[index], tf.IndexedSlices)]
        if sparse and self.op not in (Average, Sum):
            raise NotImplementedError(
                "sparse gradients (IndexedSlices) can be reduced with Average and Sum only; pass sparse_as_dense=True"
            )
        prefix = execution.numbered_prefix(self.prefix)
        units: list[Any] = [_Sparse(self, f"{prefix}.{index}", index, gradients[index]) for index in sparse]
        units += [
            _Dense(self, f"{prefix}.{unit[0]}", unit, [gradients[index] for index in unit])
            for unit in self.units([i for i in chosen if i not in set(sparse)], variables)
        ]
        units.sort(key=lambda unit: -max(unit.positions))
        parts, dtypes, shapes = [], [], []
        for part in grouping.split_list(units, _PARTS):
            parts.append((_beginner(part), [tensor for unit in part for tensor in unit.tensors]))
            for unit in part:
                dtypes += unit.dtypes
                shapes += unit.shapes
        outputs = execution.run_parts(parts, dtypes, shapes)
        for unit in units:
            count = len(unit.dtypes)
            unit.take(outputs[:count], results)
            outputs = outputs[count:]


def _beginner(units):
    """Starts the operations of units whose arrays come one after the other."""

    def begin(*arrays):
        start = 0
        for unit in units:
            count = len(unit.tensors)
            yield from unit.begin(arrays[start : start + count])
            start += count

    return begin


class _Dense:
    """Dense gradients that run as one group, or alone."""

    def __init__(self, reducer, name, positions, gradients):
        self.reducer = reducer
        self.name = name
        self.positions = positions
        compressed = [reducer.compression.compress(gradient) for gradient in gradients]
        self.tensors = [wire for wire, _ in compressed]
        self.contexts = [context for _, context in compressed]
        self.dtypes = [tensor.dtype for tensor in self.tensors]
        self.shapes = [tensor.shape for tensor in self.tensors]

    def begin(self, arrays):
        reducer = self.reducer
        yield ops.allreduce(
            arrays,
            self.name,
            reducer.op,
            reducer.prescale,
            reducer.postscale,
            reducer.process_set,
            grouped=len(arrays) > 1,
        )

    def take(self, outputs, results):
        for position, wire, context in zip(self.positions, outputs, self.contexts):
            results[position] = self.reducer.compression.decompress(wire, context)


class _Sparse:
    """IndexedSlices: the rows of all ranks, concatenated; applying them adds them up."""

    def __init__(self, reducer, name, position, gradient):
        self.reducer = reducer
        self.name = name
        self.positions = [position]
        self.gradient = gradient
        wire, self.context = reducer.compression.compress(gradient.values)
        self.tensors = [wire, gradient.indices]
        self.dtypes = [tensor.dtype for tensor in self.tensors]
        self.shapes = [tf.TensorShape([None]).concatenate(tensor.shape[1:]) for tensor in self.tensors]

    def begin(self, arrays):
        for array, part in zip(arrays, ("values", "indices")):
            yield ops.allgather((array,), f"{self.name}.{part}", self.reducer.process_set)

    def take(self, outputs, results):
        values, indices = outputs
        values = self.reducer.compression.decompress(values, self.context)
        if self.reducer.op == Average:
            values = values / tf.cast(place_now(self.reducer.process_set.size), values.dtype)
        results[self.positions[0]] = tf.IndexedSlices(values, indices, self.gradient.dense_shape)
