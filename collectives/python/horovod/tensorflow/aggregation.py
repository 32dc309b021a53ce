# SPDX-License-Identifier: Apache-2.0
"""Adding up the gradients of several steps before they are reduced (backward_passes_per_step)."""

from __future__ import annotations

import tensorflow as tf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class GradientAccumulator:
    """Sums gradients in variables of its own; every `passes` calls they are due."""

    def __init__(self, passes: int, average: bool | None) -> None:
        self.passes = passes
        self.average = average  # divide the sum by `passes`
        self._sums: Any = None
        self._counter: Any = None

    def _variable(self, value, name):
        if tf.executing_eagerly() or _in_function():
            with tf.init_scope():
                return tf.Variable(value, trainable=False, name=name)
        return tf.compat.v1.get_variable(
            name,
            initializer=value,
            trainable=False,
            use_resource=True,
            collections=[tf.compat.v1.GraphKeys.GLOBAL_VARIABLES],
        )

    def _create(self, gradients):
        graph_mode = not tf.executing_eagerly() and not _in_function()
        unique = tf.compat.v1.get_default_graph().unique_name("aggregation") if graph_mode else ""
        self._counter = self._variable(tf.constant(0, tf.int32) if graph_mode else 0, f"{unique}_counter".lstrip("_"))
        self._sums = []
        for index, gradient in enumerate(gradients):
            if gradient is None:
                self._sums.append(None)
                continue
            if not gradient.shape.is_fully_defined():
                raise ValueError(f"backward_passes_per_step needs gradients of known shapes, not {gradient.shape}")
            name = f"{unique}_sum_{index}".lstrip("_")
            if graph_mode:
                self._sums.append(self._variable(tf.zeros(gradient.shape, gradient.dtype), name))
            else:
                with tf.init_scope():
                    zeros = tf.zeros(gradient.shape, gradient.dtype)
                self._sums.append(self._variable(zeros, name))

    def variables(self) -> Any:
        """The counter and the sums; none before the first add()."""
        if self._sums is None:
            return []
        return [self._counter] + [each for each in self._sums if each is not None]

    def add(self, gradients: Any) -> Any:
        """Adds the gradients; returns whether they are due now, as a tensor."""
        for gradient in gradients:
            if isinstance(gradient, tf.IndexedSlices):
                raise ValueError(
                    "backward_passes_per_step > 1 cannot add up sparse gradients "
                    "(IndexedSlices); pass sparse_as_dense=True"
                )
        if self._sums is None:
            self._create(gradients)
        added = [total.assign_add(gradient) for total, gradient in zip(self._sums, gradients) if gradient is not None]
        with tf.control_dependencies([each for each in added if each is not None]):
            count = self._counter.assign_add(1, read_value=True)
            return tf.equal(tf.convert_to_tensor(count) % self.passes, 0)

    def take(self) -> Any:
        """The sums (or averages), which start at zero again."""
        values = [None if total is None else total.read_value() for total in self._sums]
        read = [value for value in values if value is not None]
        with tf.control_dependencies(read):
            values = [None if value is None else tf.identity(value) for value in values]
        with tf.control_dependencies([value for value in values if value is not None]):
            cleared = [total.assign(tf.zeros_like(total)) for total in self._sums if total is not None]
        if not tf.executing_eagerly():
            with tf.control_dependencies([getattr(each, "op", each) for each in cleared]):
                values = [None if value is None else tf.identity(value) for value in values]
        if self.average:
            values = [None if value is None else value / tf.cast(self.passes, value.dtype) for value in values]
        return values


def _in_function():
    return getattr(tf.compat.v1.get_default_graph(), "building_function", False)
