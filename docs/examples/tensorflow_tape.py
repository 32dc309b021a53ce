# SPDX-License-Identifier: Apache-2.0
"""A custom training loop in TensorFlow: the gradients of a tape are averaged over the ranks.

    horarun -np 2 python3 docs/examples/tensorflow_tape.py

Comments with "(hvd)" mark what makes the script distributed.
"""

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd


def main():
    hvd.init()  # (hvd) joins the job
    generator = np.random.default_rng(hvd.rank())  # (hvd) this rank's data
    x = generator.normal(size=(512, 3)).astype(np.float32)
    y = x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 3.0

    weight = tf.Variable(tf.random.normal((3, 1)))
    bias = tf.Variable(tf.zeros((1,)))
    hvd.broadcast_variables([weight, bias], root_rank=0)  # (hvd) all ranks start alike

    @tf.function
    def step(rows, wanted):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((rows @ weight + bias - wanted) ** 2)
        tape = hvd.DistributedGradientTape(tape)  # (hvd)
        for variable, gradient in zip((weight, bias), tape.gradient(loss, (weight, bias))):
            variable.assign_sub(0.1 * gradient)
        return hvd.allreduce(loss, name="loss")  # (hvd) the mean of all ranks' losses

    for epoch in range(10):
        for start in range(0, len(x), 64):
            loss = step(x[start : start + 64], y[start : start + 64])
    if hvd.rank() == 0:  # (hvd)
        print(f"loss {float(loss):.6f}, bias is {float(bias[0]):.3f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
