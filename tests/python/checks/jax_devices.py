# SPDX-License-Identifier: Apache-2.0
"""hora.jax in ranks with two devices each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hora.jax as hvd
from hora.jax_operations import ProgramError
from support.expect import close, raises

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map

# These releases end the process when a program with a callback follows on one device.
ENDS_PROCESSES = jax.__version_info__ < (0, 5)


class Skip(Exception):
    pass


def mesh(devices):
    return Mesh(np.array(jax.devices()[:devices]), ("d",))


def mapped(function, devices):
    return shard_map(function, mesh=mesh(devices), in_specs=PartitionSpec("d"), out_specs=PartitionSpec("d"))


def own():
    return jnp.arange(8.0) + 100 * hvd.rank()


OPERATIONS = {
    "allreduce": hvd.allreduce,
    "named": lambda x: hvd.allreduce(x, "named", hvd.Sum),
    "grouped_allreduce": lambda x: hvd.grouped_allreduce([x, 2 * x])[1],
    "allgather": hvd.allgather,
    "broadcast": lambda x: hvd.broadcast(x, 0),
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
    "parameters": lambda x: hvd.broadcast_parameters({"x": x})["x"],
    "gradients": lambda x: hvd.allreduce_gradients({"x": x})["x"],
    "metric": hvd.metric_average,
    "gradient of one": jax.grad(lambda x: (hvd.allreduce(x) ** 2).sum()),
    "scan": lambda x: jax.lax.scan(lambda c, _: (hvd.allreduce(c), None), x, None, length=2)[0],
}


def check_refused_when_mapped_over_devices():
    for name, operation in OPERATIONS.items():
        for call in (
            mapped(operation, 2),
            jax.jit(mapped(operation, 2)),
            mapped(jax.jit(operation), 2),
            jax.grad(lambda x: mapped(operation, 2)(x).sum()),
        ):
            error = raises(ValueError, call, own())
            assert "over 2 devices" in str(error), (name, error)
        raises(ValueError, jax.pmap(operation, axis_name="i"), own().reshape(2, -1))
        # Neither call nor name is left in flight.
        jax.block_until_ready(operation(own()))
        jax.block_until_ready(jax.jit(operation)(own()))


def check_one_of_the_devices():
    for operation in OPERATIONS.values():
        expected = operation(own())
        for call in (mapped(operation, 1), jax.jit(mapped(operation, 1))):
            close(call(own()), expected)
    gradient = jax.grad(lambda x: mapped(lambda y: hvd.allreduce(y * y, op=hvd.Sum), 1)(x).sum())
    close(gradient(own()), 2 * hvd.size() * own())


def check_sharded_arrays():
    """A rank takes part once, with the whole array."""
    sharded = jax.device_put(own(), NamedSharding(mesh(2), PartitionSpec("d")))
    summed = sum(jnp.arange(8.0) + 100 * rank for rank in range(hvd.size()))
    close(hvd.allreduce(sharded, op=hvd.Sum), summed)
    if ENDS_PROCESSES:
        raise Skip(f"JAX {jax.__version__} cannot run on one device again after that")
    for _ in range(5):
        close(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(sharded), summed)

    def step(x):
        local = mapped(lambda part: jax.lax.psum(part, "d"), 2)(x)
        return hvd.allreduce(local, op=hvd.Sum)

    halves = summed.reshape(2, -1).sum(0)
    close(jax.jit(step)(sharded), jnp.concatenate([halves, halves]))


def check_use_after_an_error():
    if ENDS_PROCESSES:
        raise Skip(f"JAX {jax.__version__} cannot run on one device again after several")
    whole = jnp.ones(4 * (hvd.rank() + 1))
    sharded = jax.device_put(whole, NamedSharding(mesh(2), PartitionSpec("d")))
    compiled = jax.jit(lambda x: hvd.allreduce(x, "of several shapes"))
    error = raises(ProgramError, lambda: jax.block_until_ready(compiled(sharded)))
    assert "TensorMismatchError" in str(error)
    close(hvd.allreduce(own()), OPERATIONS["allreduce"](own()))
    doubled = jax.jit(lambda x: 2 * hvd.allreduce(x, op=hvd.Sum))
    close(doubled(jnp.ones(4)), np.full(4, 2 * hvd.size()))


def check_large_integers_of_numpy():
    """JAX itself would cut them to 32 bits here: jax_enable_x64 is not set."""
    assert jnp.asarray(np.zeros(0, np.int64)).dtype == np.int32
    hashes = np.array([2**64 - 1 - hvd.rank()], np.uint64)
    seen = {"samples": np.int64(7 + 2**40), "hashes": hashes, "w": np.ones(2, np.float32)}
    received = hvd.broadcast_parameters(seen, root_rank=hvd.size() - 1)
    assert received["samples"] == 7 + 2**40 and received["samples"].dtype == np.int64
    assert received["hashes"].dtype == np.uint64 and received["hashes"].tolist() == [2**64 - hvd.size()]
    assert isinstance(received["w"], jax.Array)
