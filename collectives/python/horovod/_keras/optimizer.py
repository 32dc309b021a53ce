# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for Keras's optimizers: Keras 3 with any backend, and tf_keras (Keras 2).

The wrapped optimizer shares the state of the given one: what was built or restored before stays.
Its class has the name of the wrapped class, under which Keras saves it, so that a saved model loads without
this package.
"""

from __future__ import annotations

import sys

from hora.basics import Average, Sum
from hora.process_sets import global_process_set
from horovod._keras.backends import backend_name
from horovod._keras.reducers import make_reducer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hora.process_sets import ProcessSet

_REDUCER_ATTRIBUTE = "_hora_reducer"


class _Distributed:
    """What both generations have in common."""

    _HAS_AGGREGATE_GRAD = True

    def __init__(self, *args, **kwargs):
        """Another one with the same options for reducing gradients: what from_config() makes."""
        super(self.__class__, self).__init__(*args, **kwargs)
        if getattr(self, "gradient_accumulation_steps", None) == self._arguments["backward_passes_per_step"]:
            self.gradient_accumulation_steps = None  # from the configuration: ours, not its own
        self._distribute(self)

    def register_local_var(self, var):
        """The gradient of this variable stays this rank's own."""
        if _delegates(self):
            raise ValueError(
                "local layers with an optimizer that scales the loss: a rank whose own gradients overflow would leave "
                "out the step, and the others take it"
            )
        _reducer(self).register_local(var)

    def build(self, *args, **kwargs):
        """Makes the variables of the optimizer."""
        _refuse_loss_scaling_around(self)
        return super(self.__class__, self).build(*args, **kwargs)


class _Keras3(_Distributed):
    """Keras 3: apply() gets the gradients. When several steps are added up, Keras does that in
    apply(), and asks for the sum to be clipped when it is due: that is when it is reduced."""

    def apply(self, grads, trainable_variables=None):
        """Reduces the gradients, or their sum when it is due, and applies them. Collective."""
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        variables = trainable_variables
        if variables is None:
            variables = list(self._trainable_variables)
        reducer = _reducer(self)
        _refuse_loss_scaling_around(self)
        if self.gradient_accumulation_steps and not _delegates(self):
            grads = [reducer.densify(gradient) for gradient in grads]
            reducer.accumulated = [variable for gradient, variable in zip(grads, variables) if gradient is not None]
        else:
            grads = reducer.reduce(grads, variables)
        return super(self.__class__, self).apply(grads, trainable_variables)

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        """Keras's JAX trainer calls it inside jit; reduces the gradients as apply() does. Collective."""
        if _delegates(self):  # it does not come to apply() then
            grads = _reducer(self).reduce(grads, self._trainable_variables)
        return super(self.__class__, self).stateless_apply(optimizer_variables, grads, trainable_variables)

    def _clip_gradients(self, grads):
        if self.gradient_accumulation_steps and not _delegates(self):
            grads = _reduce_accumulated(self, list(grads))
        return super(self.__class__, self)._clip_gradients(grads)

    def __reduce__(self):
        """For copies and pickles: Keras saves what an optimizer is, and this class is not one of its own."""
        base = type(self).__base__
        plain = object.__new__(base)
        plain.__dict__.update({name: value for name, value in vars(self).items() if name != _REDUCER_ATTRIBUTE})
        if self._arguments["backward_passes_per_step"] > 1:
            plain.gradient_accumulation_steps = None
        return _distribute_again, (plain, self._arguments)


class _Keras2(_Distributed):
    """Keras 2 on TensorFlow: apply_gradients() gets them."""

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        """Reduces the gradients, or their sum when it is due, and applies them. Collective."""
        pairs = list(grads_and_vars)
        gradients = [gradient for gradient, _ in pairs]
        variables = [variable for _, variable in pairs]
        reducer = _reducer(self)
        _refuse_loss_scaling_around(self)
        plain = super(self.__class__, self).apply_gradients
        if reducer.accumulator is None:
            reduced = reducer.reduce(gradients, variables)
            return plain(list(zip(reduced, variables)), *args, **kwargs)
        return _apply_when_due(self, plain, gradients, variables, args, kwargs)


class _Arguments(dict):
    """The keyword arguments of distribute(); the layers, variables and process sets among them are not copied."""

    def __deepcopy__(self, memo):
        return self


def _distribute_again(optimizer, arguments):
    return distribute(optimizer, **arguments)


def _reducer(optimizer):
    return optimizer.__dict__[_REDUCER_ATTRIBUTE]


def _delegates(optimizer):
    """Whether it only scales the loss, and hands the gradients on to another optimizer."""
    return hasattr(optimizer, "inner_optimizer")


def _reduce_accumulated(optimizer, grads):
    reducer = _reducer(optimizer)
    steps = optimizer.gradient_accumulation_steps
    # Keras divides the sum by the number of steps; Horovod does so only when it is asked to.
    factor = 1 if reducer.average_accumulated else steps
    variables = getattr(reducer, "accumulated", None)

    def reduce(gradients):
        reduced = reducer.reduce(gradients, variables)
        return [gradient if gradient is None or factor == 1 else gradient * factor for gradient in reduced]

    if backend_name(optimizer) != "jax" or not reducer.is_needed():
        return reduce(grads)
    # On JAX, Keras computes every step as if it were due, and drops what is not.
    import jax

    due = (optimizer._iterations.value + 1) % steps == 0
    return jax.lax.cond(due, reduce, lambda gradients: list(gradients), grads)


def _apply_when_due(optimizer, plain, gradients, variables, args, kwargs):
    import tensorflow as tf

    reducer = _reducer(optimizer)
    gradients = [reducer.densify(gradient) for gradient in gradients]
    due = reducer.accumulator.add(gradients)
    with tf.init_scope():  # its variables are made outside of the branch
        if hasattr(optimizer, "build"):
            optimizer.build([v for g, v in zip(gradients, variables) if g is not None])
        else:
            optimizer._create_all_weights([v for g, v in zip(gradients, variables) if g is not None])

    def apply():
        reduced = reducer.reduce(reducer.accumulator.take(), variables)
        plain(list(zip(reduced, variables)), *args, **kwargs)
        return tf.constant(True)

    def count_only():
        optimizer.iterations.assign_add(1)
        return tf.constant(False)

    return tf.cond(due, apply, count_only)


def _wrapped_class(base, methods, distribute_it, arguments):
    # Integrations recognise it by the module.
    members = {"__module__": __name__, "__doc__": base.__doc__, "__qualname__": base.__qualname__}
    for cls in reversed(methods.__mro__[:-1]):
        members.update(
            (name, value)
            for name, value in vars(cls).items()
            if name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__")
        )
    if not hasattr(base, "build"):
        del members["build"]
    members.update(_distribute=staticmethod(distribute_it), _arguments=arguments)
    # The names under which Keras 2 exports it, and thus saves it.
    members.update((name, value) for name, value in vars(base).items() if name.startswith("_keras_api_names"))
    wrapped = type(base.__name__, (base,), members)
    _share_registered_names(base, wrapped)
    return wrapped


def _share_registered_names(base, wrapped):
    """Keras looks in tables of its own for the name of a class that it exports, or that a program has registered."""
    for module in (
        "keras.src.api_export",
        "keras.src.saving.object_registration",
        "keras.saving.object_registration",
        "tf_keras.src.saving.object_registration",
    ):
        for table in ("REGISTERED_OBJS_TO_NAMES", "GLOBAL_CUSTOM_NAMES", "_GLOBAL_CUSTOM_NAMES"):
            names = getattr(sys.modules.get(module), table, {})
            # On PyTorch, an optimizer is of a class of that backend, below the one that Keras exports.
            known = [cls for cls in base.__mro__ if cls in names and cls.__name__ == base.__name__]
            if known:
                names[wrapped] = names[known[0]]


_INSIDE_OUT = (
    "wrap the loss-scaling optimizer, not the other way round: "
    "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)). Otherwise each rank decides alone "
    "whether to take a step. Under the policy mixed_float16, compile() puts one around the optimizer that it gets, "
    "unless that is one (or auto_scale_loss=False)"
)


def _refuse_loss_scaling_around(optimizer):
    """Only the callers know that there is one."""
    reducer = _reducer(optimizer)
    if reducer.has_checked_callers:
        return
    frame = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        scales = any("LossScaleOptimizer" in cls.__name__ for cls in type(caller).__mro__)
        if scales and getattr(caller, "inner_optimizer", None) is optimizer:
            raise ValueError(_INSIDE_OUT)
        frame = frame.f_back
    reducer.has_checked_callers = frame is None


def check_loss_scaling(optimizer: Any) -> None:
    """Raises where loss scaling is around a distributed optimizer: every rank would decide alone, on gradients that
    are not reduced yet, whether to take the step."""
    if _delegates(optimizer) and not is_distributed(optimizer) and is_distributed(optimizer.inner_optimizer):
        raise ValueError(_INSIDE_OUT)


def is_distributed(optimizer: Any) -> bool:
    """Whether distribute() made this optimizer."""
    return _REDUCER_ATTRIBUTE in getattr(optimizer, "__dict__", {})


def distribute(
    optimizer: Any,
    name: str | None = None,
    compression: Any = None,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    local_layers: Any = None,
    device_dense: str = "",
    device_sparse: str = "",
) -> Any:
    """The optimizer with its gradients reduced over the ranks of process_set. It has every argument that
    DistributedOptimizer() has for any Keras; the devices are accepted and ignored."""
    arguments = _Arguments(locals())
    del arguments["optimizer"]
    if not hasattr(optimizer, "get_config"):
        raise TypeError(
            f"DistributedOptimizer takes a Keras optimizer, not {optimizer!r}; if you "
            "have its name, create it first: keras.optimizers.get(name)"
        )
    if op not in (Average, Sum):
        raise ValueError("a Keras DistributedOptimizer supports only op=Average and op=Sum")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: expected a positive integer")
    if is_distributed(optimizer):
        raise ValueError("this optimizer is already a DistributedOptimizer")
    base = type(optimizer)
    keras3 = hasattr(base, "apply") and not hasattr(base, "get_gradients")
    options = dict(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local=scale_local_gradients,
    )

    def distribute_it(wrapped):
        reducer = make_reducer(backend_name(wrapped), name or f"Distributed{base.__name__}", options)
        reducer.accumulator = None
        reducer.average_accumulated = True
        reducer.has_checked_callers = False
        wrapped.__dict__[_REDUCER_ATTRIBUTE] = reducer
        if backward_passes_per_step > 1:
            reducer.average_accumulated = average_aggregated_gradients
            _accumulate(wrapped, reducer, keras3, backward_passes_per_step)
        for layer in _as_list(local_layers):
            for weight in layer.trainable_weights:
                wrapped.register_local_var(weight)

    methods = _Keras3 if keras3 else _Keras2
    wrapped = object.__new__(_wrapped_class(base, methods, distribute_it, arguments))
    wrapped.__dict__.update(optimizer.__dict__)
    distribute_it(wrapped)
    return wrapped


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A DistributedOptimizer that leaves the gradients of local_layers to each rank.

    local_layers is a Keras layer or a list of them. With scale_local_gradients these are divided by the size of the
    set. See DistributedOptimizer for the other arguments and for what it raises; local layers do not work with an
    optimizer that scales the loss (ValueError).
    """
    return distribute(**locals())


def _accumulate(wrapped, reducer, keras3, passes):
    if not keras3:
        from horovod.tensorflow.aggregation import GradientAccumulator

        reducer.accumulator = GradientAccumulator(passes, reducer.average_accumulated)
        return
    if wrapped.gradient_accumulation_steps:
        raise ValueError(
            "backward_passes_per_step and the optimizer's own "
            "gradient_accumulation_steps both accumulate gradients; use one of them"
        )
    if _delegates(wrapped):
        raise ValueError(
            "backward_passes_per_step > 1 with an optimizer that scales the loss: "
            "give the inner optimizer gradient_accumulation_steps instead"
        )
    if wrapped.built:
        raise ValueError(
            "backward_passes_per_step > 1 needs variables of its own: "
            "distribute the optimizer before it is built or used"
        )
    if not hasattr(wrapped, "_clip_gradients"):
        raise ValueError(
            "this release of Keras adds up gradients in another way; use the optimizer's gradient_accumulation_steps"
        )
    wrapped.gradient_accumulation_steps = passes


def _as_list(value):
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
