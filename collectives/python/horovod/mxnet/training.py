# SPDX-License-Identifier: Apache-2.0
"""Optimizers and trainers whose gradients are reduced, and parameters that the ranks share."""

from __future__ import annotations

import mxnet as mx

from hora import batches, grouping
from hora.compression import checked
from hora.process_sets import global_process_set
from hora.reducer import is_needed
from horovod.mxnet.compression import Compression
from horovod.mxnet.mpi_ops import Average, broadcast_many_
from horovod.mxnet.tensors import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hora.process_sets import ProcessSet


def _reduce_in_place(units, names, scales, compression, process_set):
    """Averages lists of gradients, all in flight at once; the members of one list run
    together."""
    before, after = scales
    compressed = [[compression.compress(gradient) for gradient in unit] for unit in units]

    def begin():
        for unit, name in zip(compressed, names):
            yield ops.allreduce(
                [wire for wire, _ in unit],
                name,
                Average,
                before,
                after,
                process_set,
                in_place=True,
                grouped=len(unit) > 1,
            )

    reduced = iter(batches.run(begin))
    for unit, contexts in zip(units, compressed):
        for gradient, (_, context) in zip(unit, contexts):
            result = compression.decompress(next(reduced), context)
            if result is not gradient:
                result.copyto(gradient)


def _units(items, num_groups):
    return grouping.split_list(items, num_groups) if num_groups > 0 else [[i] for i in items]


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An MXNet optimizer around another one: update() averages the gradients over the ranks
    first. num_groups: in how many groups those of one update() are reduced together."""

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        self._optimizer = optimizer
        self._scales = grouping.check_predivide(gradient_predivide_factor, Average, Average)
        self._num_groups = num_groups
        self._process_set = process_set

    def __getattr__(self, item):
        if item == "_optimizer":
            raise AttributeError(item)
        return getattr(self._optimizer, item)

    def create_state(self, index: Any, weight: Any) -> Any:
        """The wrapped optimizer's create_state()."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """The wrapped optimizer's create_state_multi_precision()."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduces the gradient over the ranks, then updates the weight. Blocks until the ranks have called it."""
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """update() with master weights of float32."""
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate of the wrapped optimizer."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """Sets the wrapped optimizer's multipliers of the learning rate."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """Sets the wrapped optimizer's multipliers of weight decay."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def _reduce(self, index, grad):
        if not is_needed(self._process_set):
            return
        indices = index if isinstance(index, (list, tuple)) else [index]
        gradients = grad if isinstance(index, (list, tuple)) else [grad]
        units = _units(list(zip(indices, gradients)), self._num_groups)
        _reduce_in_place(
            [[gradient for _, gradient in unit] for unit in units],
            [f"gradient.{unit[0][0]}" for unit in units],
            self._scales,
            Compression.none,
            self._process_set,
        )


class DistributedTrainer(mx.gluon.Trainer):
    """A gluon Trainer that averages the gradients over the ranks instead of using a key-value
    store. All ranks pass their parameters in the same order."""

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            import warnings

            warnings.warn(
                "DistributedTrainer reduces the gradients itself; it takes the "
                "optimizer within the DistributedOptimizer",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        if isinstance(params, dict):
            params = [params[name] for name in sorted(params)]
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._hora_scales = grouping.check_predivide(gradient_predivide_factor, Average, Average)
        self._hora_compression = checked(compression)
        self._hora_prefix = prefix or ""
        self._hora_num_groups = num_groups
        self._hora_process_set = process_set

    def _allreduce_grads(self):
        if not is_needed(self._hora_process_set):
            return
        gradients = [
            (index, gradient)
            for index, parameter in enumerate(self._params)
            if parameter.grad_req != "null"
            for gradient in parameter.list_grad()[:1]
        ]
        units = _units(gradients, self._hora_num_groups)
        _reduce_in_place(
            [[gradient for _, gradient in unit] for unit in units],
            [f"{self._hora_prefix}trainer.{unit[0][0]}" for unit in units],
            self._hora_scales,
            self._hora_compression,
            self._hora_process_set,
        )


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Writes the root's values into the parameters of all ranks: a dict of NDArrays (Module.get_params()), or the
    parameters of a gluon block.

    A parameter whose shape is not known yet is broadcast when it is initialized. `prefix` begins the names by which
    ranks match. Blocks until all ranks have called it. ValueError for another kind of parameters; otherwise raises
    what broadcast_() raises."""
    if not hasattr(params, "items"):
        raise ValueError(
            f"broadcast_parameters takes a dict of arrays or the parameters of a block, not {type(params).__name__}"
        )
    prefix = prefix or ""
    arrays, names = [], []
    for name, parameter in sorted(params.items()):
        if not hasattr(parameter, "list_data"):
            arrays.append(parameter)
            names.append(f"{prefix}parameter.{name}")
            continue
        try:
            arrays.append(parameter.data())
            names.append(f"{prefix}parameter.{len(names)}")
        except mx.gluon.parameter.DeferredInitializationError:
            _broadcast_when_initialized(parameter, root_rank, f"{prefix}deferred.{name}")
    broadcast_many_(arrays, root_rank, names)


def _broadcast_when_initialized(parameter, root_rank, name):
    plain = parameter._init_impl

    def initialize(*args, **kwargs):
        plain(*args, **kwargs)
        parameter._init_impl = plain
        broadcast_many_([parameter.data()], root_rank, [name])

    parameter._init_impl = initialize
