# SPDX-License-Identifier: Apache-2.0
"""Collectives as calls of libhora that XLA compiles into a program on CPUs: `hora_xla_call` (hora.h).

Each is a primitive of JAX with an ordered effect: the calls of a program run in the order of the script, on every
rank the same one, and nothing of Python runs in them. Needs jax.ffi, and names of JAX for effects that are not public;
where a release has none of them, jax_operations falls back on callbacks.
"""

from __future__ import annotations

import dataclasses
import functools
import struct

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core, effects
from jax.interpreters import batching, mlir

from hora import _native, dtypes, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Here, so that a release without them cannot import this module.
_register_target, _lowering = jax.ffi.register_ffi_target, jax.ffi.build_ffi_lowering_function
_TARGET = "hora_collectives"


class _Effect(effects.Effect):
    """Of all collectives: programs keep their order."""

    __str__ = lambda _: "Collective"  # noqa: E731


_effect = _Effect()
for _allowed in (
    effects.lowerable_effects,
    effects.ordered_effects,
    effects.shardable_ordered_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(_Effect)


@functools.lru_cache(maxsize=None)
def is_usable() -> bool:
    """Whether programs that are compiled now can call libhora."""
    # A program for several devices would call it once on each.
    if jax.default_backend() != "cpu" or jax.local_device_count() > 1:
        return False
    try:  # XLA refuses a handler for another major version of its interface
        _register_target(_TARGET, jax.ffi.pycapsule(_native.library().xla_call), platform="cpu")
    except jax.errors.JaxRuntimeError:
        return False
    return True


def call(steps: Sequence[Any], values: Sequence[Any], specs: Sequence[Any]) -> list[Any]:
    """The results of jax_operations.Steps on traced values, with these shapes and dtypes."""
    copied = [not step.reduces for step in steps for _ in range(step.number)]
    wider = [_WIDER.get(value.dtype.name) if copies else None for copies, value in zip(copied, values)]
    outs = tuple(core.ShapedArray(each.shape, wide or each.dtype) for each, wide in zip(specs, wider))
    values = [value.astype(wide) if wide else value for value, wide in zip(values, wider)]
    results = _collectives.bind(*values, steps=tuple(steps), outs=outs)
    return [result.astype(each.dtype) if wide else result for result, each, wide in zip(results, specs, wider)]


# Of these, XLA keeps several elements in a byte. The values of the others include theirs.
_WIDER = {f"{sign}int{bits}": np.dtype(f"{sign}int8") for sign in ("", "u") for bits in (1, 2, 4)}
if hasattr(jnp, "float4_e2m1fn"):
    _WIDER["float4_e2m1fn"] = jnp.dtype(jnp.float8_e4m3fn)


_collectives = core.Primitive("hora_collectives")
_collectives.multiple_results = True


@_collectives.def_impl
def _impl(*values, **parameters):
    return jax.jit(functools.partial(_collectives.bind, **parameters))(*values)


@_collectives.def_effectful_abstract_eval
def _abstract(*_, steps, outs):
    return list(outs), {_effect}


def _lower(ctx, *operands, steps, outs):
    numbers, text = _encoded(steps, ctx.avals_in, outs)
    token = ctx.tokens_in.get(_effect)
    with_token = dataclasses.replace(
        ctx,
        avals_in=[core.abstract_token, *ctx.avals_in],
        avals_out=[core.abstract_token, *ctx.avals_out],
    )
    lower = _lowering(_TARGET, has_side_effect=True)
    token, *results = lower(with_token, token, *operands, numbers=numbers, names=text).results
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({_effect: token})))
    return results


mlir.register_lowering(_collectives, _lower, platform="cpu")


def _bits(value):
    return struct.unpack("q", struct.pack("d", float(value)))[0]


def _encoded(steps, inputs, outs):
    """What hora_xla_call() reads: numbers, and all names in one text."""
    numbers, text, index = [], "", 0
    for step in steps:
        kind = f"grouped_{step.kind}" if step.grouped else step.kind
        # Calls come in one order, so that those without a name can share one.
        base = names.operation_name(kind, "noname.compiled" if step.name is None else step.name, step.set_id)
        for position in range(step.number):
            aval, out = inputs[index], outs[index]
            code, shape = _as_native(aval, step.op if step.reduces else dtypes.COPY)
            _, out_shape = _as_native(out, step.op if step.reduces else dtypes.COPY)
            name = f"{base}_{position + 1}of{step.number}" if step.grouped else base
            numbers += [0 if position else step.number, _native.OPERATIONS[step.kind], code]
            numbers += [step.op, step.root, step.set_id]
            numbers += [_bits(step.prescale), _bits(step.postscale), step.kind not in ("allreduce", "broadcast")]
            numbers += [int(np.prod(out_shape, dtype=np.int64)), len(name.encode()), len(shape), *shape]
            text += name
            index += 1
    return np.array(numbers, np.int64), text


def _as_native(aval, op):
    code = dtypes.CODE_OF_NAME.get(aval.dtype.name)
    if code is not None:
        return code, aval.shape
    return dtypes.substitute(aval.dtype.name, aval.dtype.itemsize, aval.shape, op)


def _batch(values, dims, *, steps, outs):
    """Over an axis of vmap, which all ranks have: that of rows comes first, and that of vmap second."""
    moved, made, made_dims, index = [], [], [], 0
    for step in steps:
        if step.op == _native.ADASUM and step.kind == "allreduce":
            raise NotImplementedError("vmap of an allreduce with Adasum, which combines whole arrays")
        place = 0 if step.kind in ("allreduce", "broadcast") else 1
        for _ in range(step.number):
            value, dim, out = values[index], dims[index], outs[index]
            index += 1
            if dim is None:  # not mapped
                moved.append(value)
                made.append(out)
                made_dims.append(None)
                continue
            moved.append(jnp.moveaxis(value, dim, place))
            shape = (*out.shape[:place], value.shape[dim], *out.shape[place:])
            made.append(core.ShapedArray(shape, out.dtype))
            made_dims.append(place)
    return _collectives.bind(*moved, steps=steps, outs=tuple(made)), made_dims


batching.primitive_batchers[_collectives] = _batch
