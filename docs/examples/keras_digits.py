# SPDX-License-Identifier: Apache-2.0
"""Trains a small Keras network; every rank trains on its own part of the data.

    horarun -np 2 python3 docs/examples/keras_digits.py
    KERAS_BACKEND=jax horarun -np 2 python3 docs/examples/keras_digits.py

The script makes its data, so it downloads nothing. Comments with "(hvd)" mark what makes it
distributed.
"""

import argparse

import keras
import numpy as np

import horovod.keras as hvd

SEGMENTS = [
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
]


def pictures(count, seed):
    """The seven segments of `count` digits, as noisy brightnesses."""
    generator = np.random.default_rng(seed)
    digits = generator.integers(0, 10, count)
    shapes = np.array([[float(segment) for segment in digit] for digit in SEGMENTS])
    images = shapes[digits] + generator.normal(0, 0.3, (count, 7))
    return images.astype(np.float32), digits.astype(np.int32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    hvd.init()  # (hvd) joins the job
    x, y = pictures(4000, seed=1)
    x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]  # (hvd) this rank's part
    test_x, test_y = pictures(1000, seed=2)

    model = keras.Sequential(
        [keras.layers.Input((7,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
    )
    rate = 0.01 * hvd.size()  # (hvd) the global batch is larger by this factor
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(rate)),  # (hvd)
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        x,
        y,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # (hvd) all ranks start alike
            hvd.callbacks.MetricAverageCallback(),  # (hvd)
            hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=1),  # (hvd)
        ],
    )
    _, right = model.evaluate(test_x, test_y, verbose=0)
    if hvd.rank() == 0:  # (hvd)
        print(f"{hvd.size()} ranks: {100 * right:.1f} % right")
    hvd.shutdown()


if __name__ == "__main__":
    main()
