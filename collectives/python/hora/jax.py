# SPDX-License-Identifier: Apache-2.0
"""The collectives on JAX arrays: `import hora.jax as hvd`.

Every function works on arrays, on numbers, and inside jit, grad, scan and cond. Inside jit shapes
are compiled in, so that allgather and alltoall need the same shape on all ranks there; vmap and
jax.checkpoint cannot look through them. Inside jit, arrays on a GPU travel through the CPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hora import (  # noqa: F401
    HorovodInternalError,
    HostsUpdatedInterrupt,
    allgather_object,
    barrier,
    batches,
    broadcast_object,
    grouping,
    join,
    operations,
)
from hora.aligned_arrays import ops
from hora.basics import *  # noqa: F403
from hora.basics import Average, Product, Sum, rank
from hora.collective_docs import documented
from hora.jax_operations import (
    SELECTING,
    Step,
    allreduce_units,
    as_array,
    as_jax,
    compress,
    differentiable,
    is_traced,
    packed,
    run,
    spec,
)
from hora.names import derived
from hora.operations import choose_op, numeric_splits
from hora.process_sets import *  # noqa: F403
from hora.process_sets import ProcessSet, global_process_set
from hora.reducer import is_needed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Compression:
    """The choices for compression=: floating arrays travel as a shorter type."""

    none = "none"
    fp16 = "fp16"
    bf16 = "bf16"


# --- allreduce -----------------------------------------------------------------------------------


def _allreduce(values, name, op, prescale, postscale, process_set, grouped):
    def forward(*inputs):
        step = Step("allreduce", len(inputs), name, process_set, op, prescale, postscale, grouped=grouped)
        return run([step], inputs, [spec(value) for value in inputs])

    def backward(inputs, outputs, cotangents):
        grad_name = derived(name, "grad")
        if op in SELECTING:
            return [
                _selecting_gradient(ct, x, y, op, prescale, postscale, derived(grad_name, str(index)), process_set)
                for index, (ct, x, y) in enumerate(zip(cotangents, inputs, outputs))
            ]
        return _allreduce(cotangents, grad_name, op, prescale, postscale, process_set, grouped)

    return differentiable(forward, backward)(*values)


def _selecting_gradient(ct, source, output, op, prescale, postscale, name, process_set):
    """Min and Max pass each gradient to the ranks whose element was chosen (in equal parts),
    Product to every rank, multiplied by the others' elements."""
    (total,) = _allreduce([ct], name, Sum, 1.0, 1.0, process_set, False)
    scale = jnp.asarray(prescale * postscale, ct.dtype)
    if op == Product:
        gathered = allgather(source[None], derived(name, "others"), process_set)
        gathered = gathered * jnp.asarray(prescale, ct.dtype)
        mine = jnp.arange(process_set.size()) == process_set.rank()
        mine = mine.reshape(-1, *[1] * source.ndim)
        return total * jnp.prod(jnp.where(mine, 1, gathered), axis=0) * scale
    chosen = (source * scale == output).astype(ct.dtype)
    (ties,) = _allreduce([chosen], derived(name, "ties"), Sum, 1.0, 1.0, process_set, False)
    return total * chosen / jnp.maximum(ties, 1) * scale


@documented
def allreduce(
    tensor: Any,
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: Any = Compression.none,
) -> Any:
    """Reduces an array over the ranks, with Average, Sum, Min, Max, Product or Adasum."""
    value = jnp.asarray(tensor)
    (reduced,) = _allreduce(
        [compress(value, compression)],
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
        False,
    )
    return reduced.astype(value.dtype)


@documented
def grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: Any = Compression.none,
) -> list[Any]:
    """Reduces several arrays over the ranks together; returns a list."""
    values = [jnp.asarray(tensor) for tensor in tensors]
    reduced = _allreduce(
        [compress(value, compression) for value in values],
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
        True,
    )
    return [each.astype(value.dtype) for each, value in zip(reduced, values)]


# --- allgather, broadcast, alltoall, reducescatter -------------------------------------------------


def _needs_rows(value, kind):
    if value.ndim == 0:
        raise ValueError(f"{kind} of a scalar: it has no first dimension; reshape it to one element")


def _allgather(values, name, process_set, grouped):
    members = process_set.size()
    compiled = False  # then all ranks have equally many rows

    def forward(*inputs):
        nonlocal compiled
        compiled = any(map(is_traced, inputs))
        step = Step("allgather", len(inputs), name, process_set, grouped=grouped)
        return run([step], inputs, [spec(value, members * value.shape[0]) for value in inputs])

    def backward(inputs, outputs, cotangents):
        reduced = _allreduce(cotangents, derived(name, "grad"), Average, 1.0, 1.0, process_set, grouped)
        rows = np.array([value.shape[0] for value in inputs], np.int64)
        starts = process_set.rank() * rows
        if not compiled:  # the ranks may have different numbers of rows
            (extents,) = batches.run(
                lambda: iter([ops.allgather([rows[np.newaxis]], derived(name, "extents"), process_set)])
            )
            starts = extents[: process_set.rank()].sum(axis=0)
        return [each[start : start + count] for each, start, count in zip(reduced, starts.tolist(), rows.tolist())]

    return differentiable(forward, backward)(*values)


@documented
def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates the arrays of all ranks along the first dimension, whose extents may differ outside of jit."""
    value = jnp.asarray(tensor)
    _needs_rows(value, "allgather")
    return _allgather([value], name, process_set, False)[0]


@documented
def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Concatenates each of several arrays of all ranks along the first dimension; returns a list."""
    values = [jnp.asarray(tensor) for tensor in tensors]
    for value in values:
        _needs_rows(value, "allgather")
    return list(_allgather(values, name, process_set, True))


@documented
def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the array of root_rank on every rank."""

    def forward(value):
        return run([Step("broadcast", 1, name, process_set, root=root_rank)], [value], [spec(value)])

    def backward(inputs, outputs, cotangents):
        (mean,) = _allreduce(cotangents, derived(name, "grad"), Average, 1.0, 1.0, process_set, False)
        return [mean if rank() == root_rank else jnp.zeros_like(mean)]

    return differentiable(forward, backward)(jnp.asarray(tensor))[0]


@documented
def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends a part of the rows to each rank; returns the rows that the ranks sent here.
    Inside jit without splits only."""
    value = jnp.asarray(tensor)
    _needs_rows(value, "alltoall")
    members = process_set.size()
    even = splits is None
    if even and value.shape[0] % members:
        raise ValueError(
            f"alltoall without splits: the first dimension of the shape "
            f"{list(value.shape)} must be a multiple of {members}"
        )
    splits = None if even else numeric_splits(splits)
    received_splits = None

    def exchange(source, parts, operation_name):
        step = Step("alltoall", 1, operation_name, process_set, splits=None if even else parts)
        return run([step], [source], [spec(source) if even else None])

    def forward(source):
        nonlocal received_splits
        received, *counts = exchange(source, splits, name)
        if counts:
            received_splits = np.asarray(counts[0])
        return [received]

    def backward(inputs, outputs, cotangents):
        back = splits if even else numeric_splits(received_splits)
        returned = exchange(cotangents[0], back, derived(name, "grad"))[0]
        unsent = inputs[0].shape[0] - returned.shape[0]
        return [jnp.pad(returned, [(0, unsent)] + [(0, 0)] * (returned.ndim - 1))]

    (received,) = differentiable(forward, backward)(value)
    return received if even else (received, jnp.asarray(received_splits))


def _reducescatter(values, name, op, prescale, postscale, process_set, grouped):
    if op not in (Average, Sum):
        raise ValueError("reducescatter supports only op=Average and op=Sum")
    members = process_set.size()

    def rows(value):
        return value.shape[0] // members + (process_set.rank() < value.shape[0] % members)

    def forward(*inputs):
        step = Step("reducescatter", len(inputs), name, process_set, op, prescale, postscale, grouped=grouped)
        return run([step], inputs, [spec(value, int(rows(value))) for value in inputs])

    def backward(inputs, outputs, cotangents):
        factor = prescale * postscale * (members if op == Sum else 1)
        if any(value.shape[0] % members for value in inputs) and any(map(is_traced, cotangents)):
            raise ValueError(
                f"inside jit the gradient of reducescatter needs a number of rows that is a multiple of {members}"
            )
        gathered = _allgather(cotangents, derived(name, "grad"), process_set, grouped)
        return [each * jnp.asarray(factor, each.dtype) for each in gathered]

    return differentiable(forward, backward)(*values)


@documented
def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces an array over the ranks, with Average or Sum; returns this rank's part of the rows."""
    value = jnp.asarray(tensor)
    _needs_rows(value, "reducescatter")
    return _reducescatter([value], name, op, prescale_factor, postscale_factor, process_set, False)[0]


@documented
def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """reducescatter() of several arrays together; returns a list."""
    values = [jnp.asarray(tensor) for tensor in tensors]
    for value in values:
        _needs_rows(value, "reducescatter")
    return list(_reducescatter(values, name, op, prescale_factor, postscale_factor, process_set, True))


# --- handles: outside of jit -------------------------------------------------------------------------


def _handle(pending):
    pending.after = lambda results: [as_jax(result) for result in results]
    return operations.new_handle(pending)


@documented
def allreduce_async(
    tensor: Any,
    name: str | None = None,
    op: int | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts to reduce an array over the ranks; the result is a new array."""
    return _handle(
        ops.allreduce(
            (as_array(jnp.asarray(tensor)),),
            name,
            choose_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
        )
    )


@documented
def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts to concatenate the arrays of all ranks along the first dimension, whose extents may differ."""
    return _handle(ops.allgather((as_array(jnp.asarray(tensor)),), name, process_set))


@documented
def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts to copy the array of root_rank into a new array on every rank."""
    return _handle(ops.broadcast((as_array(jnp.asarray(tensor)),), root_rank, name, process_set))


poll = operations.poll
synchronize = operations.synchronize


# --- trees -------------------------------------------------------------------------------------------


def broadcast_parameters(
    params: Any, root_rank: int = 0, name: str = "parameters", process_set: ProcessSet = global_process_set
) -> Any:
    """The root's tree of arrays (parameters, the state of an optimizer) on every rank.

    The trees have the same structure everywhere, and their arrays the same shapes and dtypes. Leaves that are not
    arrays travel as objects, and so do 64-bit integers of NumPy without jax_enable_x64. Blocks until all ranks of
    process_set have called it. Raises what broadcast() and broadcast_object() raise.
    """
    leaves, structure = jax.tree_util.tree_flatten(params)
    values = [leaf if _is_array(leaf) else None for leaf in leaves]
    chosen = [index for index, value in enumerate(values) if value is not None]

    steps = [Step("broadcast", 1, f"{name}.{index}", process_set, root=root_rank) for index in chosen]
    arrays, unpackers = [], []
    for index in chosen:
        array, unpack = packed(jnp.asarray(values[index]))
        arrays.append(array)
        unpackers.append(unpack)
    results = run(steps, arrays, [spec(array) for array in arrays]) if chosen else []
    for index, result, unpack in zip(chosen, results, unpackers):
        leaves[index] = unpack(result)
    others = {index: leaf for index, leaf in enumerate(leaves) if values[index] is None}
    if others:
        for index, leaf in broadcast_object(others, root_rank, f"{name}.objects", process_set).items():
            leaves[index] = leaf
    return jax.tree_util.tree_unflatten(structure, leaves)


def _is_array(leaf):
    """Whether a leaf becomes an array of JAX. Integers of NumPy that JAX would cut to 32 bits do not."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf.dtype.kind not in "iu" or jnp.asarray(np.zeros(0, leaf.dtype)).dtype == leaf.dtype
    return isinstance(leaf, jax.Array) or is_traced(leaf)


def allreduce_gradients(
    gradients: Any,
    op: int = Average,
    compression: Any = Compression.none,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    name: str = "gradients",
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduced tree of gradients; all of them are in flight at once.

    groups: how many groups of them are reduced together (a number). gradient_predivide_factor: with op=Average,
    divides by this before the sum and by size/factor after it. Blocks until all ranks of process_set have called it;
    returns the gradients themselves where there is no other rank. ValueError for an argument out of range; otherwise
    raises what allreduce() raises.
    """
    prescale, postscale = grouping.check_predivide(gradient_predivide_factor, op, Average)
    groups = grouping.check_groups(groups, 0)
    if groups is not None and not isinstance(groups, int):
        raise ValueError("groups= must be a number of groups here: a tree has no named variables")
    if not is_needed(process_set):
        return gradients
    leaves, structure = jax.tree_util.tree_flatten(gradients)
    positions = list(range(len(leaves)))
    units = grouping.split_list(positions, groups) if groups and leaves else [[position] for position in positions]
    reduced = allreduce_units(
        [[leaves[index] for index in unit] for unit in units],
        [f"{name}.{unit[0]}" for unit in units],
        op,
        prescale,
        postscale,
        process_set,
        compression,
    )
    for unit, values in zip(units, reduced):
        for index, value in zip(unit, values):
            leaves[index] = value
    return jax.tree_util.tree_unflatten(structure, leaves)


def metric_average(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """A number, an array or a tree of them, averaged over the ranks. Blocks and raises as allreduce() does."""
    if not is_needed(process_set):
        return value
    leaves, structure = jax.tree_util.tree_flatten(value)
    averaged = [
        allreduce(
            jnp.asarray(leaf, jnp.result_type(leaf, jnp.float32)),
            derived(name, str(index)),
            Average,
            process_set=process_set,
        )
        for index, leaf in enumerate(leaves)
    ]
    return jax.tree_util.tree_unflatten(structure, averaged)


# --- optimizers ----------------------------------------------------------------------------------------


class AccumulationState(NamedTuple):
    """The state of a distributed optimizer that adds up several passes."""

    inner: Any
    sums: Any
    count: Any


def DistributedOptimizer(
    optimizer: Any,
    op: int = Average,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    name: str = "gradients",
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps a gradient transformation (a pair of functions init and update, as optax has them): update() reduces the
    gradients over the ranks first.

    The call itself does not block; update() does, as allreduce_gradients() does.

    Args:
        optimizer: the transformation
        op, compression, gradient_predivide_factor, groups, name, process_set: see allreduce_gradients()
        backward_passes_per_step: how many updates to add up before gradients are reduced and applied; the updates in
            between return zeros
        average_aggregated_gradients: divide those sums by the number of updates

    Raises ValueError for an argument out of range."""
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: expected a positive integer")

    def reduce(gradients):
        return allreduce_gradients(gradients, op, compression, gradient_predivide_factor, groups, name, process_set)

    def update(updates, state, params=None, **extra):
        return optimizer.update(reduce(updates), state, params, **extra)

    passes = backward_passes_per_step
    if passes == 1:
        return _replaced(optimizer, optimizer.init, update)

    def start(params):
        return AccumulationState(
            optimizer.init(params), jax.tree_util.tree_map(jnp.zeros_like, params), jnp.zeros((), jnp.int32)
        )

    def accumulate(updates, state, params=None, **extra):
        sums = jax.tree_util.tree_map(lambda total, each: total + each, state.sums, updates)
        count = state.count + 1

        def step(_):
            total = sums
            if average_aggregated_gradients:
                total = jax.tree_util.tree_map(lambda each: each / passes, sums)
            changes, inner = update(total, state.inner, params, **extra)
            return changes, inner, jax.tree_util.tree_map(jnp.zeros_like, sums)

        def wait(_):
            return jax.tree_util.tree_map(jnp.zeros_like, updates), state.inner, sums

        changes, inner, sums_left = jax.lax.cond(count % passes == 0, step, wait, None)
        return changes, AccumulationState(inner, sums_left, count)

    return _replaced(optimizer, start, accumulate)


class GradientTransformation(NamedTuple):
    """The pair of functions that an optimizer is, where optax's own type is not at hand."""

    init: Any
    update: Any


def _replaced(optimizer, start, update):
    """An optimizer of the same type with other functions."""
    if hasattr(optimizer, "_replace"):
        return optimizer._replace(init=start, update=update)
    return GradientTransformation(start, update)
