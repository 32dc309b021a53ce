# SPDX-License-Identifier: Apache-2.0
"""Fits a line in JAX's own way to use several processes: one array over all of them, and one program."""

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec

jax.config.update("jax_cpu_collectives_implementation", "gloo")  # the default of newer releases
rank_to_leave_out = sys.argv[1:]
if rank_to_leave_out:
    import os

    if os.environ["RANK"] in rank_to_leave_out:
        sys.exit()
    jax.distributed.initialize(initialization_timeout=2)
jax.distributed.initialize()

mesh = Mesh(np.array(jax.devices()), ("ranks",))
truth = np.array([1, -2, 0.5, 3], np.float32)
own = np.random.default_rng(jax.process_index()).normal(size=(64, 4)).astype(np.float32)
inputs = multihost_utils.host_local_array_to_global_array(own, mesh, PartitionSpec("ranks"))
targets = multihost_utils.host_local_array_to_global_array(own @ truth, mesh, PartitionSpec("ranks"))


@jax.jit
def step(weights, inputs, targets):
    loss, gradient = jax.value_and_grad(lambda w: ((inputs @ w - targets) ** 2).mean())(weights)
    return weights - 0.1 * gradient, loss


weights = np.zeros(4, np.float32)
for _ in range(200):
    weights, loss = step(weights, inputs, targets)
found, loss = (np.asarray(each.addressable_data(0)) for each in (weights, loss))
print(
    f"rank {jax.process_index()} of {jax.process_count()} found {','.join(map(str, found))} loss {loss}",
    f"GPUs {jax.config._read('jax_cuda_visible_devices')}",
)
