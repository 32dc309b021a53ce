# SPDX-License-Identifier: Apache-2.0
"""Fits a line with TensorFlow's own way to use several processes, which finds them by TF_CONFIG."""

import json
import os

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
size = strategy.num_replicas_in_sync
rank = int(os.environ["RANK"])
assert size == sum(map(len, config["cluster"].values())), config
truth = tf.constant([[1.0], [-2.0], [0.5], [3.0]])
inputs = tf.random.stateless_normal([64, 4], seed=[rank, 1])
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))


@tf.function
def step():
    def compute():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weights - inputs @ truth) ** 2)
        gradient = tape.gradient(loss, weights)
        context = tf.distribute.get_replica_context()
        weights.assign_sub(0.1 * context.all_reduce(tf.distribute.ReduceOp.MEAN, gradient))
        return loss

    return strategy.run(compute)


for _ in range(200):
    loss = step()
found = ",".join(map(str, weights.numpy()[:, 0]))
task = config["task"]
print(f"rank {rank} of {size} found {found} loss {float(loss)} as {task['type']} {task['index']}", flush=True)
