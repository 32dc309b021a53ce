# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: for TensorFlow 1's optimizers here, for Keras's in horovod._keras."""

from __future__ import annotations

import tensorflow as tf

from hora import grouping
from hora.process_sets import global_process_set
from horovod.tensorflow.aggregation import GradientAccumulator
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import GradientReducer
from horovod.tensorflow.mpi_ops import Adasum, Average, Sum, size
from horovod.tensorflow.reductions import allreduce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hora.process_sets import ProcessSet

_LegacyOptimizer: Any = tf.compat.v1.train.Optimizer


class _Wrapped(_LegacyOptimizer):
    """An optimizer of tf.compat.v1.train around another one."""

    def __init__(self, optimizer, name, use_locking):
        super().__init__(use_locking, name or f"Distributed{type(optimizer).__name__}")
        self._optimizer = optimizer

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, *args, **kwargs):
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapped):
    """Reduces the gradients that compute_gradients() returns. With backward_passes_per_step the gradients are
    accumulated, and reduced and applied once for that many steps."""

    def __init__(self, optimizer, name, use_locking, reducer, passes, average):
        super().__init__(optimizer, name, use_locking)
        self._reducer = reducer
        self._accumulator = GradientAccumulator(passes, average) if passes > 1 else None

    def register_local_var(self, var):
        """The gradient of this variable stays this rank's own."""
        self._reducer.register_local(var)

    def compute_gradients(self, *args, **kwargs):
        """The wrapped optimizer's (gradient, variable) pairs, reduced unless several steps are added up. Collective."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if self._accumulator is not None:
            return pairs
        return self._reduced(pairs)

    def _reduced(self, pairs):
        if not pairs:
            return pairs
        gradients, variables = zip(*pairs)
        return list(zip(self._reducer.reduce(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Applies the gradients; with backward_passes_per_step, reduces and applies the sum when it is due."""
        if self._accumulator is None:
            return self._optimizer.apply_gradients(grads_and_vars, global_step, name)
        gradients, variables = zip(*grads_and_vars)
        gradients = [self._reducer.densify(gradient) for gradient in gradients]
        due = self._accumulator.add(gradients)
        # Slots are variables: they are made outside of the branch.
        create_slots = getattr(self._optimizer, "_create_slots", None)
        if create_slots is not None:
            with tf.init_scope() if tf.executing_eagerly() else tf.name_scope(""):
                create_slots([variable for gradient, variable in zip(gradients, variables) if gradient is not None])

        def apply():
            pairs = self._reduced(list(zip(self._accumulator.take(), variables)))
            done = self._optimizer.apply_gradients(pairs, global_step, name)
            with tf.control_dependencies([done]):
                return tf.constant(True)

        return tf.cond(due, apply, lambda: tf.constant(False)).op


class _DistributedAdasumOptimizer(_Wrapped):
    """Every rank takes its own step; the changes of the variables are combined with Adasum, every
    backward_passes_per_step steps."""

    def __init__(self, optimizer, name, use_locking, compression, passes, process_set):
        super().__init__(optimizer, name, use_locking)
        self._compression = compression
        self._passes = passes
        self._process_set = process_set

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Takes this rank's own step, and combines the changes of all ranks when it is due."""
        grads_and_vars = [(g, v) for g, v in grads_and_vars if g is not None]
        variables = [variable for _, variable in grads_and_vars]
        scope = tf.compat.v1.get_default_graph().unique_name("adasum")
        starts = [
            tf.compat.v1.get_variable(
                f"{scope}_start_{index}",
                trainable=False,
                use_resource=True,
                initializer=tf.zeros(variable.shape, variable.dtype.base_dtype),
            )
            for index, variable in enumerate(variables)
        ]
        counter = tf.compat.v1.get_variable(
            f"{scope}_counter", initializer=tf.constant(0), trainable=False, use_resource=True
        )

        def remember():
            noted = [start.assign(variable.read_value()).op for start, variable in zip(starts, variables)]
            with tf.control_dependencies(noted):
                return tf.constant(True)

        is_first = tf.equal(counter.read_value() % self._passes, 0)
        noted = tf.cond(is_first, remember, lambda: tf.constant(False))
        with tf.control_dependencies([noted]):
            applied = self._optimizer.apply_gradients(grads_and_vars, global_step, name)
        with tf.control_dependencies([applied]):
            count = counter.assign_add(1, read_value=True)

        def combine():
            assigned = []
            for variable, start in zip(variables, starts):
                before = start.read_value()
                delta = allreduce(
                    variable.read_value() - before,
                    op=Adasum,
                    compression=self._compression,
                    process_set=self._process_set,
                    name=f"adasum_delta_{len(assigned)}",
                    ignore_name_scope=True,
                )
                assigned.append(variable.assign(before + delta).op)
            with tf.control_dependencies(assigned):
                return tf.constant(True)

        with tf.control_dependencies([count]):
            return tf.cond(
                tf.equal(tf.convert_to_tensor(count) % self._passes, 0), combine, lambda: tf.constant(False)
            ).op


def is_keras_optimizer(optimizer: Any) -> bool:
    """Whether it is one of Keras, of any generation, without importing Keras for that."""
    return any(
        cls.__module__.split(".", 1)[0] in ("keras", "tf_keras") or ".keras." in f".{cls.__module__}."
        for cls in type(optimizer).__mro__
    )


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer so that its gradients are reduced over the ranks of process_set before each step.

    Takes optimizers of tf.compat.v1.train and of Keras, and returns one of the same kind. Does not block.

    Args:
        optimizer: the optimizer to wrap; it must not be distributed yet
        use_locking: of tf.compat.v1.train's optimizers
        name: prefix of the names by which ranks match gradients. Default: made of the optimizer's class
        device_dense, device_sparse: accepted; gradients are reduced where they are
        compression: Compression.none, .fp16 or .bf16: wider floats travel as that type
        sparse_as_dense: reduce sparse gradients as dense tensors
        gradient_predivide_factor: with op=Average, divides by this before the sum and by size/factor after it
        op: Average or Sum; for tf.compat.v1.train also Adasum, which combines the changes of the variables
        backward_passes_per_step: how many steps to add up before gradients are reduced and applied
        average_aggregated_gradients: divide those sums by the number of steps
        num_groups: the older spelling of a number for groups
        groups: a number of groups, or lists of variables, whose gradients are reduced together
        process_set: the ranks that take part; the others keep their own gradients
        scale_local_gradients: divide the gradients of local variables by the size of the set

    Raises ValueError for another kind of optimizer, one that is distributed already, or an argument out of range.
    """
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: expected a positive integer")
    if isinstance(optimizer, _LegacyOptimizer):
        if backward_passes_per_step > 1 and tf.executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 works with tf.compat.v1.train "
                "optimizers in graphs only; use a Keras optimizer in eager mode"
            )
        if op == Adasum:
            grouping.check_predivide(gradient_predivide_factor, op, Average)
            if size() == 1:
                return optimizer
            return _DistributedAdasumOptimizer(
                optimizer, name, use_locking, compression, backward_passes_per_step, process_set
            )
        if op not in (Average, Sum):
            raise ValueError("DistributedOptimizer supports op=Average, op=Sum and op=Adasum")
        reducer = GradientReducer(
            name or f"Distributed{type(optimizer).__name__}",
            op,
            compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            scale_local=scale_local_gradients,
        )
        return _DistributedOptimizer(
            optimizer, name, use_locking, reducer, backward_passes_per_step, average_aggregated_gradients
        )
    if is_keras_optimizer(optimizer):
        if op == Adasum:
            raise ValueError(
                "op=Adasum supports only optimizers of tf.compat.v1.train; "
                "use op=Average or op=Sum for Keras optimizers"
            )
        from horovod._keras.optimizer import distribute

        return distribute(
            optimizer,
            name=name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            backward_passes_per_step=backward_passes_per_step,
            op=op,
            gradient_predivide_factor=gradient_predivide_factor,
            average_aggregated_gradients=average_aggregated_gradients,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    raise ValueError(
        f"DistributedOptimizer takes an optimizer of Keras or of tf.compat.v1.train, not {type(optimizer).__name__}"
    )
