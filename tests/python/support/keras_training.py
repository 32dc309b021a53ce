# SPDX-License-Identifier: Apache-2.0
"""A small network, its data and how it is trained: for the checks of both Keras modules."""

import numpy as np

from support.expect import close

ROWS = 8  # of one rank, for each step


class Training:
    """With the Keras and the face (hvd) that are given; `steps` of every epoch."""

    def __init__(self, keras, hvd, steps):
        self.keras = keras
        self.hvd = hvd
        self.steps = steps

    def data(self):
        """All ranks' rows: step by step, rank by rank."""
        generator = np.random.default_rng(1)
        count = self.steps * ROWS * self.hvd.size()
        x = generator.normal(size=(count, 4)).astype(np.float32)
        return x, (x @ generator.normal(size=(4, 2)) + 0.3).astype(np.float32)

    def own(self, array):
        """This rank's rows, in the order of the steps."""
        steps = array.reshape(self.steps, self.hvd.size(), ROWS, *array.shape[1:])
        return steps[:, self.hvd.rank()].reshape(-1, *array.shape[1:])

    def build(self, seed=0):
        keras = self.keras
        keras.utils.set_random_seed(seed)
        return keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(2)]
        )

    @staticmethod
    def fit(model, optimizer, x, y, batch, callbacks=(), epochs=2, **options):
        model.compile(optimizer=optimizer, loss="mse", **options)
        return model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))

    def whole(self, optimizer, **options):
        """The network that one process has trained on all ranks' rows."""
        x, y = self.data()
        model = self.build()
        self.fit(model, optimizer, x, y, ROWS * self.hvd.size(), **options)
        return model


def same_weights(model, other, tolerance=1e-5):
    for mine, theirs in zip(model.get_weights(), other.get_weights()):
        close(mine, theirs, tolerance)
