# SPDX-License-Identifier: Apache-2.0
"""How an operation of the runtime becomes a part of JAX: at once on arrays, on traced values as a call of libhora
(hora.xla), or as an ordered callback where a release or a device has no such calls.

Both run in the order of the script, on every rank the same one. On the CPU, inputs are not copied, and results are used
in place. So it is on a GPU, outside of compiled programs: JAX brings what a callback gets to the CPU.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from hora import _native, batches, device_arrays, dtypes, operations
from hora.aligned_arrays import ops
from hora.device_arrays import DeviceArray

try:
    from hora import xla
except (ImportError, AttributeError):  # this release of JAX has not what it needs
    xla = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from hora.operations import Pending
    from hora.process_sets import ProcessSet

# Before this release, gradients are computed by a stack of traces.
_OLD_TRACES = jax.__version_info__ < (0, 4, 36)
if jax.__version_info__ < (0, 7):
    # Where these releases trace a function with a custom gradient, they refuse ordered callbacks, and no public
    # function allows them. Their private names do not change any more.
    from jax._src import callback, effects

    effects.custom_derivatives_allowed_effects.add_type(callback.OrderedIOEffect)

# What a callback that failed raises from a program.
if hasattr(jax.errors, "JaxRuntimeError"):
    ProgramError = jax.errors.JaxRuntimeError
else:
    from jaxlib import xla_extension

    ProgramError = xla_extension.XlaRuntimeError

_WIRE = {"none": None, "fp16": jnp.float16, "bf16": jnp.bfloat16}


def is_traced(value: Any) -> bool:
    """Whether jit or grad is tracing this value, so that it has a shape but no memory."""
    return isinstance(value, jax.core.Tracer)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _zeros(shape, dtype):
    """The output of a program: no other array has its memory, as those of jnp.zeros() may."""
    return jnp.zeros(shape, dtype)


class _JaxSource(device_arrays.Source):
    def export(self, array: Any) -> Any:
        return array.block_until_ready().__dlpack__()

    def dtype_name(self, array: Any) -> str:
        return array.dtype.name

    def fresh(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        (device,) = like.devices()
        with jax.default_device(device):
            return _zeros(tuple(shape), dtype)


source = _JaxSource()


@functools.lru_cache(maxsize=None)
def keeps_gpu_arrays() -> bool:
    """Whether there is a GPU, and arrays on it are to stay there."""
    return device_arrays.wanted() and any(device.platform in ("gpu", "cuda") for device in jax.local_devices())


def is_on_gpu(array: Any) -> bool:
    """Whether an array is on one GPU. Those on several go through the CPU, and so do those of types that only NumPy
    can show as bytes."""
    if not keeps_gpu_arrays() or array.dtype.name not in dtypes.CODE_OF_NAME:
        return False
    devices = array.devices()
    return len(devices) == 1 and next(iter(devices)).platform in ("gpu", "cuda")


def as_array(array: Any) -> Any:
    """What the runtime reads."""
    return DeviceArray(array, source) if is_on_gpu(array) else np.asarray(array)


def as_jax(array: Any) -> Any:
    """The JAX array that takes over an aligned array's memory. jnp.asarray() of JAX 0.10 would copy it."""
    return array.tensor if type(array) is DeviceArray else jax.device_put(array)


def spec(value: Any, rows: int | None = None) -> Any:
    """The shape and dtype of a result: those of the value, or with another number of rows."""
    shape = value.shape if rows is None else (rows, *value.shape[1:])
    return jax.ShapeDtypeStruct(shape, value.dtype)


_has_failed = False  # whether a callback has failed since recover()


def recover() -> None:
    """Where a program over several devices failed in a callback, JAX fails all later programs of this thread that have
    ordered callbacks with the same error, and has no public function to end that."""
    global _has_failed
    if not _has_failed:
        return
    _has_failed = False
    try:
        jax.effects_barrier()
    except ProgramError:
        from jax._src import dispatch

        dispatch.runtime_tokens.clear()


def _mapped_devices() -> int:
    """Over how many devices shard_map or pmap divides the function that is being traced; 1 outside of them."""
    if hasattr(getattr(jax.sharding, "AbstractMesh", None), "manual_axes"):
        mesh = jax.sharding.get_abstract_mesh()
        return mesh.size if mesh.manual_axes else 1
    # These releases do not say so in public, and their private names do not change any more.
    from jax._src import core

    if _OLD_TRACES:
        sizes = [axis.size for axis in core.thread_local_state.trace_state.axis_env]
    else:
        sizes = core.get_axis_env().axis_sizes.values()
    return math.prod(sizes)


def _refuse_several_devices() -> None:
    """There, JAX calls an ordered callback once on each device, in any order, so that the ranks would reduce parts
    of different devices with each other."""
    devices = _mapped_devices()
    if devices > 1 and jax.local_device_count() > 1:
        raise ValueError(
            f"a collective inside of shard_map or pmap over {devices} devices: each rank takes part in it once, not "
            "once per device. Call it outside, on the result (reduce over the rank's own devices by jax.lax.psum "
            "first), or use one device per rank"
        )


def _as_varied(results: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The results, marked as the values are: types name the axes of shard_map's mesh over which a value differs."""
    axes = tuple(frozenset[str]().union(*map(_varying_axes, values)))
    if not axes:
        return list(results)
    if hasattr(jax.lax, "pcast"):
        return [jax.lax.pcast(result, axes, to="varying") for result in results]
    return [jax.lax.pvary(result, axes) for result in results]


def _varying_axes(value):
    kind = jax.typeof(value) if hasattr(jax, "typeof") else None
    if hasattr(kind, "manual_axis_type"):
        return kind.manual_axis_type.varying
    return getattr(kind, "vma", ())  # its older name


def _staged(call: Callable[..., Any], specs: Sequence[Any], *values: Any) -> list[Any]:
    _refuse_several_devices()
    stage = functools.partial(io_callback, call, specs, ordered=True)
    # There, io_callback takes values to the gradient that is being computed, even out of its custom rule; a program
    # within the program keeps them.
    results = jax.jit(stage)(*values) if _OLD_TRACES else stage(*values)
    return _as_varied(results, values)


class Step(NamedTuple):
    """One operation, or a group of them that run together."""

    kind: str
    number: int  # of arrays
    name: str | None
    process_set: Any
    op: int = _native.SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    grouped: bool = False
    splits: Any = None

    @property
    def reduces(self) -> bool:
        """Whether it computes, and does not copy alone."""
        return self.kind in ("allreduce", "reducescatter")

    @property
    def set_id(self) -> int:
        """The number of the process set."""
        return operations.set_id_of(self.process_set)

    def start(self, arrays: Sequence[Any]) -> Pending:
        """Starts it on these arrays."""
        if self.kind == "broadcast":
            return ops.broadcast(arrays, self.root, self.name, self.process_set)
        if self.kind == "allgather":
            return ops.allgather(arrays, self.name, self.process_set, grouped=self.grouped)
        if self.kind == "alltoall":
            return ops.alltoall(arrays[0], self.splits, self.name, self.process_set)
        reduce = getattr(ops, self.kind)
        return reduce(arrays, self.name, self.op, self.prescale, self.postscale, self.process_set, grouped=self.grouped)


def run(steps: Sequence[Step], values: Sequence[Any], specs: Sequence[Any]) -> list[Any]:
    """The results of all steps on the values. `specs` are their shapes and dtypes, needed for traced values: one for
    each value, and those of the received splits of alltoall."""

    def begin(*arrays):
        at = 0
        for step in steps:
            yield step.start(arrays[at : at + step.number])
            at += step.number

    recover()
    if not any(map(is_traced, values)):
        return [as_jax(result) for result in batches.run(begin, *map(as_array, values))]
    if any(each is None for each in specs):
        raise ValueError(
            "inside jit the shape of the result must be known beforehand; do this operation outside of jit"
        )
    if xla is not None and xla.is_usable() and _mapped_devices() == 1:
        return xla.call(steps, values, specs)

    def call(*arrays):
        global _has_failed
        try:
            results = batches.run(begin, *map(np.asarray, arrays))
        except Exception:
            _has_failed = True
            raise
        for result, expected in zip(results, specs):
            if tuple(result.shape) != tuple(expected.shape):
                raise ValueError(
                    f"inside jit all ranks need arrays of one shape: the result has the shape "
                    f"{list(result.shape)}, {list(expected.shape)} was compiled"
                )
        return results

    return _staged(call, list(specs), *values)


def differentiable(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """forward(*values) -> list, with backward(values, outputs, cotangents) -> list as its
    gradient."""

    @jax.custom_vjp
    def function(*values):
        return forward(*values)

    def save(*values):
        outputs = function(*values)  # not forward(): these may be differentiated once more
        return outputs, (values, outputs)

    function.defvjp(save, lambda saved, cotangents: tuple(backward(*saved, cotangents)))
    return function


def packed(array: Any) -> Any:
    """(array that can travel, function that makes of a received one what `array` is): keys of jax.random travel as
    their data."""
    if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return array, lambda received: received
    implementation = jax.random.key_impl(array)
    return jax.random.key_data(array), lambda received: jax.random.wrap_key_data(received, impl=implementation)


def compress(value: Any, compression: Any) -> Any:
    """The value as it travels: types of two bytes and fewer gain nothing."""
    wire = _WIRE[compression]
    if wire is None or not jnp.issubdtype(value.dtype, jnp.floating) or value.dtype.itemsize <= 2:
        return value
    return value.astype(wire)


def allreduce_units(
    units: Sequence[Sequence[Any]],
    names: Sequence[str],
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    compression: Any = "none",
) -> list[list[Any]]:
    """Reduced lists of arrays for lists of arrays, all in flight at once. The members of one
    list run together and have the list's name. Not differentiable: for gradients."""
    counts = [len(unit) for unit in units]
    flat = [jnp.asarray(value) for unit in units for value in unit]
    wires = [compress(value, compression) for value in flat]
    steps = [
        Step("allreduce", count, name, process_set, op, prescale, postscale, grouped=count > 1)
        for count, name in zip(counts, names)
        if count
    ]
    if not wires:
        return [[] for _ in units]
    reduced = iter(run(steps, wires, [spec(wire) for wire in wires]))
    values = iter([next(reduced).astype(value.dtype) for value in flat])
    return [[next(values) for _ in unit] for unit in units]


SELECTING = (_native.MIN, _native.MAX, _native.PRODUCT)
