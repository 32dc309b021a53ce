# SPDX-License-Identifier: Apache-2.0
"""How the gradients of one PyTorch optimizer are reduced: a hook on each parameter submits its
gradient as soon as backward() has accumulated it; synchronize() waits for all of them."""

from __future__ import annotations

import contextlib
import functools
import weakref

import torch

from hora.operations import set_id_of
from horovod.torch.mpi_ops import Average, Sum, allreduce_async_, grouped_allreduce_async_, synchronize
from horovod.torch.sparse import empty_sparse, sparse_allreduce_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from hora.process_sets import ProcessSet


# By its name since PyTorch 2.0. There storage() is another one, which takes longer.
_storage = torch.Tensor.untyped_storage if hasattr(torch.Tensor, "untyped_storage") else torch.Tensor._storage

# Those that have hooks. A parameter has one of them; see Reduction.attach().
_attached: weakref.WeakSet[Reduction] = weakref.WeakSet()
# (id of a process set, name) -> who has started an operation of that name there, and the function that waits for it.
_reducing: dict[Any, tuple[weakref.ref[Reduction], Callable[[], Any]]] = {}


def default_name(group: int, index: int) -> str:
    """The name of a parameter that was given none."""
    return f"allreduce.noname.{group}.{index}"


class ChangedGradientError(RuntimeError):
    """A gradient was written to between backward() and step(), while it was being reduced."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} between backward() and step(), while gradients are being reduced: the ranks would get different "
            "weights. Call optimizer.synchronize() after backward(), then change the gradients (clip_grad_norm_(), "
            "scaler.unscale_(optimizer)), and call step() within optimizer.skip_synchronize()"
        )


class _Submitted:
    """A gradient in flight, and what shows whether something else writes to it. Tensors that share memory mostly
    share their version, too: an accumulation into one looks like a change of the others."""

    __slots__ = ("gradient", "is_part", "version")

    def __init__(self, gradient):
        self.gradient = gradient
        self.is_part = (
            not gradient.is_sparse and _storage(gradient).nbytes() > gradient.numel() * gradient.element_size()
        )
        self.note_version()

    def note_version(self):
        gradient = self.gradient
        self.version = None if gradient.is_inference() else gradient._version  # those have none

    def is_changed(self, parameter):
        now = parameter.grad
        return now is not None and (
            now is not self.gradient or (self.version is not None and now._version != self.version)
        )


class Reduction:
    """What one DistributedOptimizer knows about its parameters and their gradients in flight."""

    def __init__(
        self,
        names: dict[torch.Tensor, str],
        compression: Any,
        passes: int,
        op: int,
        prescale: float,
        postscale: float,
        groups: list[list[torch.Tensor]],
        sparse_as_dense: Any,
        process_set: ProcessSet,
        active: bool,
        sparse_dims: dict[torch.Tensor, int],
    ) -> None:
        self.reference = weakref.ref(self)
        self.names = names  # parameter -> name
        self.compression = compression
        self.passes = passes  # backward passes that are added up before a reduction
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.groups = groups  # lists of parameters that are reduced together
        self.group_of = {p: index for index, group in enumerate(groups) for p in group}
        self.ready_in_group: list[set[torch.Tensor]] = [set() for _ in groups]
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.active = active  # whether gradients are reduced at all
        self.sparse_dims = sparse_dims  # parameter -> in how many dimensions its gradient is sparse
        self.passes_left: dict[torch.Tensor, int] = {}  # parameter -> backward passes until it is submitted
        self.in_flight: dict[Any, Callable[[], Any]] = {}  # parameter or group index -> function that waits
        self.submitted: dict[torch.Tensor, _Submitted] = {}  # parameter -> its gradient that is in flight
        self.parts: list[_Submitted] = []  # those of them that share memory with other tensors, in backward()
        self.complete: Any = (
            None  # the function that waits for the sum over the ranks: 1 of each that has all gradients
        )
        self.started: set[Any] = set()  # keys of _reducing: what is in flight
        self.hooks: list[Any] = []
        self.hooked: dict[int, torch.Tensor] = {}  # id -> parameter that has a hook, in order
        self.by_name: list[torch.Tensor] = []  # the same parameters in the order of their names, as on all ranks
        self.taken_over: list[str] = []  # names of parameters that a later optimizer reduces
        self.synchronized = False
        self.synchronize_in_step = True
        self.optimizer: Any = lambda: None  # a weak reference to the distributed optimizer
        self.scheduled: Any = None  # the optimizer before it was wrapped, if a scheduler watches its step()
        self.used = False  # whether any step has waited for gradients

    def reset(self) -> None:
        """Forgets what is in flight and what was counted, as before the first backward pass. The names of what is in
        flight can be used again when it is done: see _claim()."""
        self.started.clear()
        self.in_flight.clear()
        self.submitted.clear()
        self.parts.clear()
        self.complete = None
        self.synchronized = False
        for ready in self.ready_in_group:
            ready.clear()
        for parameter in self.passes_left:
            self.passes_left[parameter] = self.passes

    # --- hooks ---------------------------------------------------------------------------------

    def attach(self, param_groups: Iterable[dict[str, Any]]) -> None:
        """Hooks for the parameters that need gradients and have none yet: all at first, later those that were added
        or unfrozen since. The last optimizer that hooks a parameter reduces its gradient: a script that trains in
        stages makes an optimizer for each, and the hooks of the earlier ones remain.
        """
        if not self.active:
            return
        others = [other for other in _attached if other is not self]
        _attached.add(self)
        for i, j, parameter in self._without_hook(param_groups):
            for other in others:
                other._give_up(parameter)
            self.names.setdefault(parameter, default_name(i, j))
            self.passes_left[parameter] = self.passes
            self.hooked[id(parameter)] = parameter
            self.hooks.append(_on_gradient(parameter, self._on_gradient))
        self.by_name = sorted(self.hooked.values(), key=lambda p: str(self.names.get(p)))

    def _without_hook(self, param_groups):
        for i, group in enumerate(param_groups):
            for j, parameter in enumerate(group["params"]):
                if parameter.requires_grad and id(parameter) not in self.hooked:
                    yield i, j, parameter

    def _give_up(self, parameter):
        if self.hooked.pop(id(parameter), None) is not None:
            self.taken_over.append(str(self.names.get(parameter)))

    def detach(self) -> None:
        """For an optimizer that is gone: its hooks would keep the parameters until a garbage collection.
        Those of one that has done no step stay, since a script that forgot to use what DistributedOptimizer
        returned has to learn of it."""
        if self.used:
            self.reset()
            for hook in self.hooks:
                hook.remove()
            self.hooks.clear()
            self.hooked.clear()

    def _on_gradient(self, parameter):
        if id(parameter) not in self.hooked:
            return  # a later optimizer's
        key = self.group_of.get(parameter, parameter)
        if key in self.in_flight or self.passes_left[parameter] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(): that of "
                f"{self.names.get(parameter)} more than {self.passes} time(s). Increase backward_passes_per_step to "
                "accumulate gradients locally"
            )
        self.synchronized = False
        self.passes_left[parameter] -= 1
        if self.passes_left[parameter] == 0:
            self._gradient_ready(parameter)
            submitted = self.submitted.get(parameter)
            if submitted is not None and submitted.is_part:
                self.parts.append(submitted)
                if len(self.parts) == 1:
                    torch.autograd.Variable._execution_engine.queue_callback(self._note_versions_of_parts)
            if len(self.submitted) == len(self.hooked) and not self.taken_over:
                optimizer = self.optimizer()
                if optimizer is not None and next(self._without_hook(optimizer.param_groups), None) is None:
                    self._start_completeness(True)  # in one step with the last gradient

    def _note_versions_of_parts(self):
        """backward() is done: nothing accumulates into gradients any more."""
        for part in self.parts:
            part.note_version()
        self.parts.clear()

    def _gradient_ready(self, parameter):
        group = self.group_of.get(parameter)
        if group is None:
            self._start(parameter)
            return
        self.ready_in_group[group].add(parameter)
        if len(self.ready_in_group[group]) == len(self.groups[group]):
            self._start(group)

    # --- submitting ------------------------------------------------------------------------------

    def _start(self, key):
        """Submits the gradient of a parameter, or those of a group, of which `key` is the index."""
        self.in_flight[key] = self._submit_group(key) if isinstance(key, int) else self._submit(key)

    def _claim(self, name, parameter):
        """Waits for the operation of this name that an optimizer has left in flight. ValueError if that one is still
        going to wait for it itself."""
        key = (set_id_of(self.process_set), name)
        if key not in _reducing:
            return
        reference, wait = _reducing[key]
        other = reference()
        if other is not None and key in other.started and not other.taken_over and other.optimizer() is not None:
            raise ValueError(
                f"another DistributedOptimizer is reducing a gradient named {self.names.get(parameter)!r}: give the "
                "parameters of each optimizer names of their own, for example "
                "named_parameters=[('generator.' + name, p) for name, p in generator.named_parameters()]"
            )
        with contextlib.suppress(Exception):
            wait()
        _reducing.pop(key, None)

    def _note_start(self, name, wait):
        key = (set_id_of(self.process_set), name)
        _reducing[key] = self.reference, wait
        self.started.add(key)
        return wait

    def _gradient_to_submit(self, parameter):
        """The gradient; zeros where backward() made none, which other ranks may have: sparse ones
        where it is a sparse gradient as a rule. With sparse_as_dense a dense copy of a sparse one."""
        gradient = parameter.grad
        if gradient is None:
            dims = self.sparse_dims.get(parameter)
            gradient = (
                torch.zeros_like(parameter, memory_format=torch.preserve_format)
                if dims is None
                else empty_sparse(parameter, dims)
            )
        elif gradient.is_sparse:
            if gradient._nnz():
                self.sparse_dims[parameter] = gradient.sparse_dim()
            else:  # zero_grad() may have made one that is sparse in all dimensions
                gradient = empty_sparse(parameter, self.sparse_dims.get(parameter, 1))
        if gradient is not parameter.grad:
            parameter.grad = gradient
        self.submitted[parameter] = _Submitted(gradient)
        return gradient.to_dense() if gradient.is_sparse and self.sparse_as_dense else gradient

    def _take_reduced(self, parameter, submitted, reduced):
        """Makes `reduced` the gradient of the parameter. An optimizer that takes only sparse gradients
        gets a sparse one, however it travelled."""
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = reduced.to_sparse(self.sparse_dims.get(parameter, 1))
        elif reduced is not submitted:
            with torch.no_grad():
                submitted.copy_(reduced)

    def _submit(self, parameter):
        name = self.names.get(parameter)
        self._claim(name, parameter)
        gradient = self._gradient_to_submit(parameter)
        if gradient.is_sparse:
            wait_sparse = self._note_start(name, sparse_allreduce_async(gradient, name, self.op, self.process_set))

            def finish():
                parameter.grad = wait_sparse()

            return finish
        wire, context = self.compression.compress(gradient)
        wait = self._start_reducing(allreduce_async_, wire, name)

        def finish():
            self._take_reduced(parameter, gradient, self.compression.decompress(wait(), context))

        return finish

    def _submit_group(self, index):
        parameters = [parameter for parameter in self.groups[index] if parameter.requires_grad]
        if not parameters:
            return lambda: None
        name = f"group{index}." + str(self.names.get(self.groups[index][0]))
        self._claim(name, self.groups[index][0])
        gradients = [self._gradient_to_submit(parameter) for parameter in parameters]
        if any(gradient.is_sparse for gradient in gradients):
            finishes = [self._submit(parameter) for parameter in parameters]
            return lambda: [finish() for finish in finishes]
        compressed = [self.compression.compress(gradient) for gradient in gradients]
        wait = self._start_reducing(grouped_allreduce_async_, [wire for wire, _ in compressed], name)

        def finish():
            for parameter, gradient, wire, (_, context) in zip(parameters, gradients, wait(), compressed):
                self._take_reduced(parameter, gradient, self.compression.decompress(wire, context))

        return finish

    def _start_reducing(self, start, tensors, name, op=None):
        handle = start(
            tensors,
            name=name,
            op=self.op if op is None else op,
            prescale_factor=self.prescale,
            postscale_factor=self.postscale,
            process_set=self.process_set,
        )
        return self._note_start(name, functools.partial(synchronize, handle))

    # --- waiting -----------------------------------------------------------------------------------

    def check_unchanged(self) -> None:
        """Raises if a gradient in flight was written to or replaced."""
        changed = [self.names.get(each) for each, its in self.submitted.items() if its.is_changed(each)]
        if changed:
            others = f" and {len(changed) - 1} other(s)" if len(changed) > 1 else ""
            raise ChangedGradientError(f"the gradient of {changed[0]}{others} changed")

    def synchronize(self, param_groups: Iterable[dict[str, Any]]) -> None:
        """Submits zeros for parameters that backward() did not reach, because other ranks may have reached
        them, waits for all gradients, and prepares the next step. What no rank has reached is left without a
        gradient. Parameters that were frozen meanwhile are ignored."""
        if self.taken_over:
            raise ValueError(
                f"a later DistributedOptimizer has taken over {len(self.taken_over)} of this one's parameters, "
                f"{self.taken_over[0]} among them: the gradient of a parameter is reduced for the optimizer that was "
                "made last. Make the next optimizer when this one has done its last step, or give each parameter to "
                "one optimizer only"
            )
        self.used = True
        self.attach(param_groups)
        lacking = {p for p in self.hooked.values() if p.grad is None and p not in self.submitted}
        for index, group in enumerate(self.groups):
            if index not in self.in_flight:
                self._start(index)
        for parameter in self.hooked.values():
            if parameter.requires_grad and parameter not in self.group_of and parameter not in self.in_flight:
                self._start(parameter)
        if self.complete is None:
            self._start_completeness(not any(parameter.requires_grad for parameter in lacking))
        try:
            finish_all([self.check_unchanged, *self.in_flight.values(), lambda: self._leave_out(lacking)])
        finally:
            for key in self.started:
                _reducing.pop(key, None)
            self.reset()
        self.synchronized = True

    # An optimizer with weight decay or momentum would move a parameter whose gradient is the zeros that stand in for
    # one that no rank has. As long as one rank has all gradients there is none, so one number is enough in most steps.

    def _start_completeness(self, has_all):
        if any(parameter.requires_grad for parameter in self.by_name):
            self.complete = self._start_counting("complete", [float(has_all)])

    def _leave_out(self, lacking):
        """Removes the gradients that this rank and all others lack."""
        if self.complete is None or self.complete().item() > 0:
            return
        trained = [parameter for parameter in self.by_name if parameter.requires_grad]
        counts = self._start_counting("present", [float(p not in lacking) for p in trained])().tolist()
        for parameter, count in zip(trained, counts):
            if count == 0 and parameter in lacking:
                parameter.grad = None

    def _start_counting(self, what, ones):
        """Starts the sums of these over the ranks, which share a step with gradients of float32; returns the function
        that waits for them."""
        first = next(parameter for parameter in self.by_name if parameter.requires_grad)
        name = f"{what}.{self.names.get(first)}"
        self._claim(name, first)
        tensor = torch.tensor(ones, dtype=torch.float32, device="cpu")
        return self._start_reducing(allreduce_async_, tensor, name, self.op if self.op == Average else Sum)


def finish_all(waits: Iterable[Callable[[], Any]]) -> None:
    """Calls all of them, so that no operation is left in flight if one fails, and raises the first failure."""
    failure = None
    for wait in waits:
        try:
            wait()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


class _NodeHook:
    """A hook of an older release, and the node that it is on."""

    def __init__(self, node, hook):
        self.node = node
        self.remove = node.register_hook(hook).remove


def _on_gradient(parameter, action):
    """Calls action(parameter) whenever a gradient was added to parameter.grad, until remove() is called on
    what this returns."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(action)
    # Older releases: the node that accumulates is reachable through any view; it has to be kept
    # alive for its hook to stay.
    with torch.enable_grad():
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return _NodeHook(node, lambda *_: action(parameter))
