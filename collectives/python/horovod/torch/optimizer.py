# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: a PyTorch optimizer whose gradients are reduced over the ranks.

Communication overlaps with the rest of the backward pass (see reduction.py); step() waits for all of it
first.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import warnings
import weakref

import torch

from hora import _native, grouping, objects
from hora.compression import checked
from hora.operations import set_id_of
from hora.process_sets import global_process_set
from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import Adasum, Average, Max, Min, Product, Sum, allreduce_async_, size, synchronize
from horovod.torch.reduction import ChangedGradientError, Reduction, default_name, finish_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hora.process_sets import ProcessSet


class _Wrapped:
    """What every distributed optimizer has: what integrations read, by Horovod's names, and how it is copied."""

    @property
    def _parameter_names(self):
        return self._reduction.names

    @property
    def _handles(self):
        return self._reduction.in_flight

    @property
    def _requires_update(self):
        return set(self._reduction.hooked.values())

    @property
    def _step_supports_amp_scaling(self):
        """GradScaler.step() asks for it before it unscales the gradients, which their versions do not show."""
        if self._reduction.in_flight:
            raise ChangedGradientError("GradScaler.step() was called")
        return self.__dict__.get("_step_supports_amp_scaling", False)

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value):
        self.__dict__["_step_supports_amp_scaling"] = value

    def __reduce_ex__(self, protocol):
        """For pickle and copy: the class is made at run time, so a copy is wrapped again. It has copies of the
        parameters, with hooks of their own."""
        reduction = self._reduction
        if reduction.in_flight:
            raise RuntimeError(
                "a distributed optimizer cannot be copied between backward() and step(): its gradients are being "
                "reduced. Copy it after step() or synchronize()"
            )
        base = self.__class__.__bases__[0]
        state = dict(super(self.__class__, self).__reduce_ex__(max(2, protocol))[2])
        state.pop("_reduction", None)
        options = {
            "named_parameters": list(reduction.names.items()),
            "compression": reduction.compression,
            "backward_passes_per_step": reduction.passes,
            "op": reduction.op,
            "gradient_predivide_factor": reduction.postscale,
            "groups": reduction.groups or None,
            "sparse_as_dense": reduction.sparse_as_dense,
            "process_set": None if reduction.process_set is global_process_set else reduction.process_set,
        }
        return _wrap_copy, (base, state, options)

    def _note_step(self):
        """Schedulers that were made before the optimizer was wrapped watch whether the one that they know steps."""
        scheduled = self._reduction.scheduled
        if scheduled is not None:
            scheduled._opt_called = True
            if hasattr(scheduled, "_step_count"):  # PyTorch 2.3 and older
                scheduled._step_count += 1


class _Distributed(_Wrapped):
    """What DistributedOptimizer adds to the class of the optimizer that it wraps."""

    def synchronize(self):
        """Waits until every gradient is reduced; raises what a reduction failed with.

        step() does it. Call it before step() to change the reduced gradients (clip them, say), and then call step()
        within skip_synchronize(). Blocks until all ranks of the set have computed their gradients.
        """
        self._reduction.synchronize(self.param_groups)

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Within it, step() does not call synchronize()."""
        before, self._reduction.synchronize_in_step = self._reduction.synchronize_in_step, False
        try:
            yield
        finally:
            self._reduction.synchronize_in_step = before

    def step(self, closure=None):
        """Waits for the reduced gradients, as synchronize() does, and takes the step of the wrapped optimizer.

        RuntimeError if a gradient changed after backward() had begun to reduce it.
        """
        reduction = self._reduction
        self._note_step()
        if not reduction.active:
            return super(self.__class__, self).step(closure)
        if reduction.in_flight and not reduction.synchronize_in_step:
            raise ChangedGradientError("step() was called within skip_synchronize()")
        if reduction.synchronize_in_step and (closure is None or reduction.in_flight):
            if reduction.synchronized:
                # Programs look for the first words.
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(): the gradients are reduced again, which takes time and undoes what was "
                    "done to them. Call step() within optimizer.skip_synchronize()",
                    stacklevel=2,
                )
            reduction.synchronize(self.param_groups)
        if closure is not None:
            inner = closure

            def closure():
                loss = inner()
                if not reduction.synchronized:  # the closure may have called synchronize() itself
                    reduction.synchronize(self.param_groups)
                return loss

        result = super(self.__class__, self).step(closure)
        reduction.synchronized = False
        return result

    def zero_grad(self, *args, **kwargs):
        """Clears the gradients. AssertionError between backward() and step(), where they are being reduced."""
        if self._reduction.in_flight:
            self._reduction.check_unchanged()
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(): gradients are being reduced, and would be overwritten"
            )
        return super(self.__class__, self).zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes):
        """Accumulates that many backward passes before gradients are reduced. ValueError unless it is 1 or more."""
        _check_passes(passes)
        self._reduction.passes = passes
        for parameter in self._reduction.passes_left:
            self._reduction.passes_left[parameter] = passes

    def load_state_dict(self, *args, **kwargs):
        """Loads the state of the wrapped optimizer. Gradients that were accumulated or in flight are forgotten."""
        self._reduction.reset()
        return super(self.__class__, self).load_state_dict(*args, **kwargs)


# PyTorch wraps the step() of an optimizer's class once, for its hooks and its profiler: that of the class
# which is called in the end is wrapped already.
_Distributed.step.hooked = True  # type: ignore[attr-defined]


class _AdasumDelta(_Wrapped):
    """For op=Adasum: every rank takes its own step, and the changes are combined."""

    def synchronize(self):
        """Nothing: the changes of the parameters are reduced, in step()."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        """AssertionError: gradients are not reduced with op=Adasum."""
        raise AssertionError(
            "skip_synchronize() has no meaning with op=Adasum: gradients are "
            "not reduced, the changes of the parameters are"
        )
        yield  # never reached; makes this a context manager

    def step(self, closure=None):
        """Takes this rank's own step, and combines the changes of all ranks. Blocks until all ranks call it."""
        parameters = [
            parameter for group in self.param_groups for parameter in group["params"] if parameter.requires_grad
        ]
        self._note_step()
        starts = [parameter.detach().clone() for parameter in parameters]
        result = super(self.__class__, self).step(closure)
        with torch.no_grad():
            finish_all([self._start_combining(parameter, start) for parameter, start in zip(parameters, starts)])
        return result

    def _start_combining(self, parameter, start):
        """Sends how the parameter has changed since `start`; returns the function that waits and
        gives it the combined change."""
        reduction = self._reduction
        wire, context = reduction.compression.compress(parameter - start)
        handle = allreduce_async_(
            wire, name=f"delta.{reduction.names.get(parameter)}", op=Adasum, process_set=reduction.process_set
        )

        def finish():
            change = reduction.compression.decompress(synchronize(handle), context)
            parameter.copy_(start + change)

        return finish

    def set_backward_passes_per_step(self, passes):
        """Accepted; ValueError unless it is 1 or more."""
        _check_passes(passes)
        self._reduction.passes = passes


_AdasumDelta.step.hooked = True  # type: ignore[attr-defined]


def _wrap_copy(base, state, options):
    """A distributed optimizer from the parts that _Wrapped.__reduce_ex__() gives."""
    named = [(name, parameter) for parameter, name in options.pop("named_parameters")]
    process_set = options.pop("process_set") or global_process_set
    optimizer = base.__new__(base)
    if hasattr(optimizer, "__setstate__"):
        optimizer.__setstate__(state)
    else:
        optimizer.__dict__.update(state)
    return DistributedOptimizer(optimizer, named, process_set=process_set, **options)


def _check_arguments(optimizer, op, compression):
    _native.check_initialized("DistributedOptimizer")
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"DistributedOptimizer wraps a torch optimizer, not {optimizer!r}")
    if hasattr(optimizer, "_reduction"):
        raise ValueError("DistributedOptimizer: this optimizer is distributed already")
    if op not in (Average, Sum, Adasum, Min, Max, Product):
        raise ValueError(f"DistributedOptimizer(op={op!r}): expected Average, Sum or Adasum")
    checked(compression)


def _check_passes(passes):
    if not isinstance(passes, numbers.Integral) or passes <= 0:
        raise ValueError(f"backward_passes_per_step={passes!r}: expected a positive integer")


def _name_parameters(optimizer, named_parameters):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        return {
            p: default_name(i, j)
            for i, group in enumerate(optimizer.param_groups)
            for j, p in enumerate(group["params"])
        }
    named = list(named_parameters) if hasattr(named_parameters, "__iter__") else [named_parameters]
    if any(not isinstance(each, tuple) or len(each) != 2 for each in named):
        raise ValueError("named_parameters must be (name, parameter) pairs, as model.named_parameters() gives them")
    seen, twice = set(), set()
    for name, _ in named:
        (twice if name in seen else seen).add(name)
    if twice:
        raise ValueError("these parameter names are used more than once: " + ", ".join(sorted(map(str, twice))))
    names = {parameter: name for name, parameter in named}
    missing = sum(1 for parameter in parameters if parameter not in names)
    if missing:
        raise ValueError(
            f"named_parameters lacks {missing} of the optimizer's "
            f"{len(parameters)} parameters; pass the named_parameters() of every "
            "model that it trains, or none at all"
        )
    return names


def _in_elastic_job():
    return os.environ.get("HOROVOD_ELASTIC") == "1"


def _make_groups(parameters, names, groups, process_set, member):
    """Lists of parameters that are reduced together; an empty list by default."""
    if groups is None:
        return []
    if isinstance(groups, int):
        # Chunks must be the same everywhere: the order in which rank 0 lists them holds for all. In an
        # elastic job a rank that has come cannot ask for it: the others made their optimizers long ago.
        parameter_of = {names[parameter]: parameter for parameter in parameters}
        order = [names[parameter] for parameter in parameters]
        if _in_elastic_job():
            order.sort(key=str)
        elif member and process_set.size() > 1:
            root = process_set.ranks[0] if process_set.ranks else 0
            order = objects.broadcast_object(order, root, "gradient_groups", process_set)
        return grouping.split_list([parameter_of[name] for name in order], groups)
    listed = {parameter for group in groups for parameter in group}
    if len(listed) != sum(len(group) for group in groups):
        raise ValueError("groups: a parameter is listed more than once")
    unknown = sum(1 for parameter in listed if parameter not in set(parameters))
    if unknown:
        raise ValueError(f"groups: {unknown} tensor(s) are not parameters of this optimizer that need gradients")
    return [list(group) for group in groups if group]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Any = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optimizer so that its gradients are reduced over the ranks before each step.

    Returns an optimizer of a class that derives from that of the given one, with its options and its state. A hook on
    each parameter starts to reduce the gradient as soon as backward() has computed it; step() waits for all of them.
    Call broadcast_parameters() and broadcast_optimizer_state() first, so that all ranks start from the same values.
    The call itself does not block, unless groups is a number: then rank 0 broadcasts the order of the parameters.

    Args:
        optimizer: a torch.optim.Optimizer that is not distributed yet
        named_parameters: (name, parameter) pairs of all its parameters, as model.named_parameters() gives them: ranks
            match gradients by these names. Default: positions
        compression: Compression.none, .fp16 or .bf16: wider floats travel as that type
        backward_passes_per_step: how many backward passes to accumulate before gradients are reduced
        op: Average, Sum, Min, Max, Product, or Adasum, which combines the changes that the ranks' own steps make
            instead of their gradients
        gradient_predivide_factor: with op=Average, divides by this before the sum and by size/factor after it
        num_groups: the older spelling of a number for groups
        groups: a number of groups, or lists of parameters, whose gradients are reduced together
        sparse_as_dense: reduce sparse gradients as dense tensors
        process_set: the ranks that take part; the others keep their own gradients

    Raises:
        NotInitializedError: before init()
        TypeError: not an optimizer, or not a compression
        ValueError: it is distributed already; names are missing or used twice; a group has a parameter that is not
            the optimizer's, or one twice; an argument is out of range; the set is not registered
    """
    _check_arguments(optimizer, op, compression)
    _check_passes(backward_passes_per_step)
    prescale, postscale = grouping.check_predivide(gradient_predivide_factor, op, Average)
    groups = grouping.check_groups(groups, num_groups)
    names = _name_parameters(optimizer, named_parameters)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    set_id_of(process_set)  # raises
    # One that is alone in an elastic job may be joined by others.
    member = process_set.included() and (process_set.size() > 1 or _in_elastic_job())
    adasum = op == Adasum and (size() > 1 or _in_elastic_job())
    group_lists = _make_groups(trained, names, groups, process_set, member)
    active = member and not adasum
    takes_sparse_only = isinstance(optimizer, torch.optim.SparseAdam)
    reduction = Reduction(
        names,
        compression,
        backward_passes_per_step,
        op,
        prescale,
        postscale,
        group_lists if active else [],
        sparse_as_dense,
        process_set,
        bool(active),
        dict.fromkeys(parameters, 1) if takes_sparse_only else {},
    )
    reduction.attach(optimizer.param_groups)
    base = optimizer.__class__
    methods = {**_Wrapped.__dict__, **(_AdasumDelta if adasum and member else _Distributed).__dict__}
    for unwanted in ("__dict__", "__weakref__", "__doc__"):
        methods.pop(unwanted, None)
    methods["__module__"] = __name__  # integrations distinguish it by this from the optimizer that it wraps
    wrapped: Any = object.__new__(type(base.__name__, (base,), methods))
    # The wrapped optimizer's options and state are shared, not copied: it was configured already.
    # A scheduler may have put its own `step` on the instance, which would hide ours.
    wrapped.__dict__.update((name, value) for name, value in optimizer.__dict__.items() if name != "step")
    wrapped._reduction = reduction
    reduction.optimizer = weakref.ref(wrapped)
    reduction.scheduled = optimizer if "step" in optimizer.__dict__ else None
    weakref.finalize(wrapped, reduction.detach).atexit = False
    return wrapped
