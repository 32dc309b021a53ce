"""DistributedOptimizer: a PyTorch optimizer whose gradients are reduced over the ranks.

Each gradient is submitted by a hook as soon as backward() has accumulated it, so that
communication runs beside the rest of the backward pass; step() waits for all of them first.
"""

import contextlib
import os
import warnings

import torch

from hora import grouping, objects
from hora.process_sets import global_process_set

from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import (
    Adasum, Average, allreduce_async_, grouped_allreduce_async_, size, synchronize)
from horovod.torch.sparse import sparse_allreduce_async


class _Reduction:
    """What one DistributedOptimizer knows about its parameters and their gradients in flight."""

    def __init__(self, names, compression, passes, op, prescale, postscale, groups,
                 sparse_as_dense, process_set):
        self.names = names  # parameter -> name
        self.compression = compression
        self.passes = passes  # backward passes that are added up before a reduction
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.groups = groups  # lists of parameters that are reduced together
        self.group_of = {p: index for index, group in enumerate(groups) for p in group}
        self.ready_in_group = [set() for _ in groups]
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.passes_left = {}  # parameter -> backward passes until it is submitted
        self.in_flight = {}  # parameter or group index -> function that waits
        self.hooks = []
        self.hooked = []  # the parameters that have a hook, in order
        self.synchronized = False
        self.synchronize_in_step = True

    def reset(self):
        self.in_flight.clear()
        self.synchronized = False
        for ready in self.ready_in_group:
            ready.clear()
        for parameter in self.passes_left:
            self.passes_left[parameter] = self.passes

    # --- hooks ---------------------------------------------------------------------------------

    def attach(self, parameters):
        for parameter in parameters:
            if not parameter.requires_grad:
                continue
            self.passes_left[parameter] = self.passes
            self.hooked.append(parameter)
            self.hooks.append(_on_gradient(parameter, self._on_gradient))

    def _on_gradient(self, parameter):
        key = self.group_of.get(parameter, parameter)
        if key in self.in_flight or self.passes_left[parameter] <= 0:
            raise AssertionError(
                f"the gradient of {self.names.get(parameter)} was computed more than "
                f"{self.passes} time(s) before step(). To add up several backward passes, pass "
                "backward_passes_per_step=N to DistributedOptimizer")
        self.synchronized = False
        self.passes_left[parameter] -= 1
        if self.passes_left[parameter] == 0:
            self._gradient_ready(parameter)

    def _gradient_ready(self, parameter):
        group = self.group_of.get(parameter)
        if group is None:
            self.in_flight[parameter] = self._submit(parameter)
            return
        self.ready_in_group[group].add(parameter)
        if len(self.ready_in_group[group]) == len(self.groups[group]):
            self.in_flight[group] = self._submit_group(group)

    # --- submitting ------------------------------------------------------------------------------

    def _dense_gradient(self, parameter):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        if parameter.grad.is_sparse and self.sparse_as_dense:
            parameter.grad = parameter.grad.to_dense()
        return parameter.grad

    def _submit(self, parameter):
        gradient = self._dense_gradient(parameter)
        name = self.names.get(parameter)
        if gradient.is_sparse:
            wait_sparse = sparse_allreduce_async(gradient, name, self.op, self.process_set)

            def finish():
                parameter.grad = wait_sparse()

            return finish
        wire, context = self.compression.compress(gradient)
        handle = allreduce_async_(wire, name=name, op=self.op, prescale_factor=self.prescale,
                                  postscale_factor=self.postscale, process_set=self.process_set)

        def finish():
            reduced = self.compression.decompress(synchronize(handle), context)
            if reduced is not gradient:
                with torch.no_grad():
                    gradient.copy_(reduced)

        return finish

    def _submit_group(self, index):
        gradients = [self._dense_gradient(parameter) for parameter in self.groups[index]]
        if any(gradient.is_sparse for gradient in gradients):
            finishes = [self._submit(parameter) for parameter in self.groups[index]]
            return lambda: [finish() for finish in finishes]
        compressed = [self.compression.compress(gradient) for gradient in gradients]
        name = f"group{index}." + str(self.names.get(self.groups[index][0]))
        handle = grouped_allreduce_async_(
            [wire for wire, _ in compressed], name=name, op=self.op,
            prescale_factor=self.prescale, postscale_factor=self.postscale,
            process_set=self.process_set)

        def finish():
            reduced = synchronize(handle)
            with torch.no_grad():
                for gradient, wire, (_, context) in zip(gradients, reduced, compressed):
                    result = self.compression.decompress(wire, context)
                    if result is not gradient:
                        gradient.copy_(result)

        return finish

    # --- waiting -----------------------------------------------------------------------------------

    def synchronize(self):
        """Submits what backward() did not reach (as zeros, since other ranks may have reached
        it), waits for all, and makes ready for the next step."""
        for index, group in enumerate(self.groups):
            if index not in self.in_flight:
                self.in_flight[index] = self._submit_group(index)
        for parameter in self.hooked:
            if parameter not in self.group_of and parameter not in self.in_flight:
                self.in_flight[parameter] = self._submit(parameter)
        waits = list(self.in_flight.values())
        self.reset()
        _finish_all(waits)
        self.synchronized = True


def _finish_all(waits):
    """Calls all of them, so that no operation is left behind when one fails; the first failure is
    raised."""
    failure = None
    for wait in waits:
        try:
            wait()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _on_gradient(parameter, action):
    """Calls action(parameter) whenever a gradient was added to parameter.grad."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(action)
    # Older releases: the node that accumulates is reachable through any view; it has to be kept
    # alive for its hook to stay.
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: action(parameter))
    return node


class _Distributed:
    """What DistributedOptimizer adds to the class of the optimizer that it wraps."""

    def synchronize(self):
        """Waits until every gradient is reduced. step() does it; call it before to change the
        reduced gradients (clip them), then step under skip_synchronize()."""
        self._reduction.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Within it, step() does not call synchronize()."""
        self._reduction.synchronize_in_step = False
        try:
            yield
        finally:
            self._reduction.synchronize_in_step = True

    def step(self, closure=None):
        reduction = self._reduction
        if not reduction.hooked:
            return super(self.__class__, self).step(closure)
        if reduction.synchronize_in_step and (closure is None or reduction.in_flight):
            if reduction.synchronized:
                warnings.warn("step() reduces the gradients again that synchronize() reduced; "
                              "call step() within optimizer.skip_synchronize()")
            reduction.synchronize()
        if closure is not None:
            inner, fresh = closure, not reduction.synchronized

            def closure():
                nonlocal fresh
                loss = inner()
                if fresh or reduction.in_flight:
                    reduction.synchronize()
                fresh = False
                return loss

        result = super(self.__class__, self).step(closure)
        reduction.synchronized = False
        return result

    def zero_grad(self, *args, **kwargs):
        if self._reduction.in_flight:
            raise AssertionError(
                "zero_grad() was called between backward() and step() or synchronize(): "
                "gradients are being reduced, and would be overwritten")
        return super(self.__class__, self).zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes):
        """Adds up so many backward passes before the gradients are reduced."""
        _check_passes(passes)
        self._reduction.passes = passes
        for parameter in self._reduction.passes_left:
            self._reduction.passes_left[parameter] = passes

    def load_state_dict(self, *args, **kwargs):
        self._reduction.reset()
        return super(self.__class__, self).load_state_dict(*args, **kwargs)


class _AdasumDelta:
    """For op=Adasum: every rank takes its own step, and the changes are combined."""

    def synchronize(self):
        """Nothing: the changes of the parameters are reduced, in step()."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        raise AssertionError("skip_synchronize() has no meaning with op=Adasum: gradients are "
                             "not reduced, the changes of the parameters are")
        yield  # noqa: unreachable; makes this a context manager

    def step(self, closure=None):
        parameters = [parameter for group in self.param_groups for parameter in group["params"]
                      if parameter.requires_grad]
        starts = [parameter.detach().clone() for parameter in parameters]
        result = super(self.__class__, self).step(closure)
        with torch.no_grad():
            _finish_all([self._start_combining(parameter, start)
                         for parameter, start in zip(parameters, starts)])
        return result

    def _start_combining(self, parameter, start):
        """Sends how the parameter has changed since `start`; answers the function that waits and
        gives it the combined change."""
        reduction = self._reduction
        wire, context = reduction.compression.compress(parameter - start)
        handle = allreduce_async_(wire, name=f"delta.{reduction.names.get(parameter)}", op=Adasum,
                                  process_set=reduction.process_set)

        def finish():
            change = reduction.compression.decompress(synchronize(handle), context)
            parameter.copy_(start + change)

        return finish

    def set_backward_passes_per_step(self, passes):
        _check_passes(passes)
        self._reduction.passes = passes


def _check_passes(passes):
    if not isinstance(passes, int) or passes <= 0:
        raise ValueError(f"backward_passes_per_step={passes}: expected a positive integer")


def _name_parameters(optimizer, named_parameters):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        return {p: f"allreduce.noname.{i}.{j}" for i, group in enumerate(optimizer.param_groups)
                for j, p in enumerate(group["params"])}
    named = list(named_parameters)
    if any(not isinstance(each, tuple) or len(each) != 2 for each in named):
        raise ValueError("named_parameters must be (name, parameter) pairs, as "
                         "model.named_parameters() gives them")
    seen, twice = set(), set()
    for name, _ in named:
        (twice if name in seen else seen).add(name)
    if twice:
        raise ValueError("these parameter names are used more than once: "
                         + ", ".join(sorted(map(str, twice))))
    names = {parameter: name for name, parameter in named}
    missing = sum(1 for parameter in parameters if parameter not in names)
    if missing:
        raise ValueError(f"named_parameters lacks {missing} of the optimizer's "
                         f"{len(parameters)} parameters; pass the named_parameters() of every "
                         "model that it trains, or none at all")
    return names


def _make_groups(parameters, names, groups, process_set, member):
    """Lists of parameters that are reduced together; an empty list when nothing was asked."""
    if groups is None:
        return []
    if isinstance(groups, int):
        # The order in which rank 0 lists them holds for all: chunks must be the same everywhere.
        parameter_of = {names[parameter]: parameter for parameter in parameters}
        order = [names[parameter] for parameter in parameters]
        if member and process_set.size() > 1:
            root = process_set.ranks[0] if process_set.ranks else 0
            order = objects.broadcast_object(order, root, "gradient_groups", process_set)
        return grouping.split_list([parameter_of[name] for name in order], groups)
    listed = {parameter for group in groups for parameter in group}
    if len(listed) != sum(len(group) for group in groups):
        raise ValueError("groups: a tensor stands in more than one group, or twice in one")
    unknown = sum(1 for parameter in listed if parameter not in set(parameters))
    if unknown:
        raise ValueError(f"groups: {unknown} tensor(s) are not parameters of this optimizer that "
                         "need gradients")
    return [list(group) for group in groups if group]


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0,
                         num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set):
    """The optimizer with its gradients reduced over the ranks of process_set before each step.

    named_parameters gives the names by which ranks match gradients (default: positions).
    backward_passes_per_step adds up so many backward passes first. gradient_predivide_factor
    moves a part of the average's division before the sum. groups: a number of groups, or lists of
    parameters, that are reduced together. op=Adasum combines the changes that the ranks' own
    steps make instead of their gradients.
    """
    _check_passes(backward_passes_per_step)
    prescale, postscale = grouping.check_predivide(gradient_predivide_factor, op, Average)
    groups = grouping.check_groups(groups, num_groups)
    names = _name_parameters(optimizer, named_parameters)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    size()  # raises before init()
    if process_set.included() is None:
        raise ValueError(f"{process_set} is not registered: pass it to init(process_sets=[...]), "
                         "or to add_process_set()")
    member = process_set.included() and (
        process_set.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")
    adasum = op == Adasum and size() > 1
    group_lists = _make_groups(trained, names, groups, process_set, member)
    reduction = _Reduction(
        names, compression, backward_passes_per_step, op, prescale, postscale,
        group_lists if member and not adasum else [],
        sparse_as_dense, process_set)
    if member and not adasum:
        reduction.attach(parameters)
    base = optimizer.__class__
    methods = dict((_AdasumDelta if adasum and member else _Distributed).__dict__)
    for unwanted in ("__dict__", "__weakref__", "__doc__"):
        methods.pop(unwanted, None)
    methods["__module__"] = base.__module__
    wrapped = object.__new__(type(base.__name__, (base,), methods))
    # The wrapped optimizer's options and state are shared, not copied: it was configured already.
    # A scheduler may have put its own `step` on the instance, which would hide ours.
    wrapped.__dict__.update(
        (name, value) for name, value in optimizer.__dict__.items() if name != "step")
    wrapped._reduction = reduction
    return wrapped
