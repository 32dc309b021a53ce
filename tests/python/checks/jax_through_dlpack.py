# SPDX-License-Identifier: Apache-2.0
"""Loaded before the checks of hora.jax, this has them take the way of arrays in GPU memory, on the CPU. What is
different on a GPU (streams, the driver) is in device_arrays_on_gpu_double.py."""

import jax
import jax.numpy as jnp
import numpy as np

import hora.jax as hvd
from hora import device_arrays, dtypes, jax_operations

taken = 0


def _is_on_gpu(array):
    global taken
    taken += 1
    return array.dtype.name in dtypes.CODE_OF_NAME and array.dtype != bool


jax_operations.is_on_gpu = _is_on_gpu
jax_operations.xla = None  # as on a GPU


def check_the_way():
    array = jax_operations.as_array(jnp.ones((1, 2)))
    assert type(array) is device_arrays.DeviceArray and array.shape == (1, 2)
    before = taken
    assert float(hvd.allreduce(jnp.ones(()), op=hvd.Sum)) == hvd.size()
    assert float(hvd.synchronize(hvd.allreduce_async(jnp.ones(()), op=hvd.Sum))) == hvd.size()
    assert taken == before + 2


def check_results_have_memory_of_their_own():
    """Results are written into what a Source makes."""
    for shape in ((), (2,), (2, 3)):
        for dtype in ("float32", "bfloat16", "int8", "bool"):
            like = jnp.zeros(shape, dtype)
            made = [jax_operations.source.fresh(shape, dtype, like) for _ in range(3)]
            arrays = [device_arrays.DeviceArray(each, jax_operations.source) for each in (*made, like)]
            assert len({array.address for array in arrays}) == 4, (shape, dtype)
            assert np.shape(made[0]) == shape and made[0].dtype == dtype


def check_what_a_callback_gets():
    """Inside jit, it is on the host already."""
    before = taken
    assert float(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(()))) == hvd.size()
    assert taken == before
