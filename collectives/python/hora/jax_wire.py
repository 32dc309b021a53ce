# SPDX-License-Identifier: Apache-2.0
"""JAX arrays of types that the runtime does not carry, as ones that it does: what is copied and not
computed with may travel as integers of the same size."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hora import dtypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INTEGER_OF_SIZE = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.int32, 8: jnp.int64}


def same(array: Any) -> Any:
    return array


def packed(array: Any) -> Any:
    """(array that can travel, function that makes of a received one what `array` is): keys of
    jax.random, unsigned integers, floating-point numbers of eight bits."""
    dtype = array.dtype
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        implementation = jax.random.key_impl(array)
        data, unpack = packed(jax.random.key_data(array))
        return data, lambda received: jax.random.wrap_key_data(unpack(received), impl=implementation)
    if dtype.name in dtypes.CODE_OF_NAME or jnp.issubdtype(dtype, jnp.complexfloating):
        return array, same
    integer = _INTEGER_OF_SIZE[dtype.itemsize]
    return (
        jax.lax.bitcast_convert_type(array, integer),
        lambda received: jax.lax.bitcast_convert_type(received, dtype),
    )
