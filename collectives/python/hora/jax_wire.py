# SPDX-License-Identifier: Apache-2.0
"""JAX arrays that are no numbers, as ones that are."""

from __future__ import annotations

import jax
import jax.numpy as jnp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def same(array: Any) -> Any:
    """The array itself: the unpacker of arrays that travel as they are."""
    return array


def packed(array: Any) -> Any:
    """(array that can travel, function that makes of a received one what `array` is): keys of jax.random travel as
    their data."""
    if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return array, same
    implementation = jax.random.key_impl(array)
    return jax.random.key_data(array), lambda received: jax.random.wrap_key_data(received, impl=implementation)
