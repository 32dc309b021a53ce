# SPDX-License-Identifier: Apache-2.0
"""Fits a line in Keras' own way to use several processes, on JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
keras.utils.set_random_seed(1)

truth = np.array([[1], [-2], [0.5], [3]], np.float32)
inputs = np.random.default_rng(jax.process_index()).normal(size=(64, 4)).astype(np.float32)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, use_bias=False)])
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
done = model.fit(inputs, inputs @ truth, batch_size=64, epochs=200, shuffle=False, verbose=0)
(found,) = (np.asarray(each.value.addressable_data(0)) for each in model.trainable_variables)
print(
    f"rank {jax.process_index()} of {jax.process_count()} found {','.join(map(str, found[:, 0]))}",
    f"loss {done.history['loss'][-1]}",
)
