# SPDX-License-Identifier: Apache-2.0
"""Training with JAX: a compiled step whose gradients are averaged over the ranks.

    horarun -np 2 python3 docs/examples/jax_regression.py

DistributedOptimizer takes any optimizer that is a pair of functions (init, update), such as those
of optax; this script defines its own. Comments with "(hvd)" mark what makes the script distributed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import hora.jax as hvd


class Optimizer(NamedTuple):
    init: object
    update: object


def sgd(rate):
    def update(gradients, state, params=None):
        return jax.tree_util.tree_map(lambda each: -rate * each, gradients), state

    return Optimizer(lambda params: (), update)


def main():
    hvd.init()  # (hvd) joins the job
    key = jax.random.PRNGKey(hvd.rank())  # (hvd) this rank's data
    x = jax.random.normal(key, (512, 3))
    y = x @ jnp.array([1.0, -2.0, 0.5]) + 3.0

    params = {"weight": jax.random.normal(key, (3,)), "bias": jnp.zeros(())}
    params = hvd.broadcast_parameters(params, root_rank=0)  # (hvd) all ranks start alike
    optimizer = hvd.DistributedOptimizer(sgd(0.1))  # (hvd)
    state = optimizer.init(params)

    def loss_of(params, rows, wanted):
        return ((rows @ params["weight"] + params["bias"] - wanted) ** 2).mean()

    @jax.jit
    def step(params, state, rows, wanted):
        loss, gradients = jax.value_and_grad(loss_of)(params, rows, wanted)
        updates, state = optimizer.update(gradients, state, params)
        return jax.tree_util.tree_map(jnp.add, params, updates), state, loss

    for epoch in range(10):
        for start in range(0, len(x), 64):
            params, state, loss = step(params, state, x[start : start + 64], y[start : start + 64])
    loss = hvd.metric_average(loss)  # (hvd)
    if hvd.rank() == 0:  # (hvd)
        print(f"loss {float(loss):.6f}, bias is {float(params['bias']):.3f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
