# SPDX-License-Identifier: Apache-2.0
"""A small network, its data and how it is trained: for the checks of both Keras modules."""

import numpy as np

from support.expect import close, raises

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

    def expect_identity(self):
        """Programs see that an optimizer is wrapped; Keras saves it as what it was; a copy reduces gradients, too."""
        plain = self.keras.optimizers.SGD(0.1, momentum=0.9, name="sgd")
        wrapped = self.hvd.DistributedOptimizer(plain)
        assert wrapped.__module__.startswith("horovod") and type(wrapped).__module__.startswith("horovod")
        assert isinstance(wrapped, type(plain)) and type(wrapped).__name__ == "SGD"
        serialize, deserialize = self.keras.optimizers.serialize, self.keras.optimizers.deserialize
        assert type(deserialize(serialize(wrapped))) is type(plain)
        assert serialize(wrapped)["config"] == serialize(plain)["config"]
        again = type(wrapped).from_config(wrapped.get_config())
        for each in (wrapped, again):
            raises(ValueError, self.hvd.DistributedOptimizer, each)
        x, y = self.data()
        model = self.build()
        self.fit(model, again, self.own(x), self.own(y), ROWS)
        same_weights(model, self.whole(type(plain)(0.1, momentum=0.9)))

        register = self.keras.utils.register_keras_serializable(package=f"of rank {self.hvd.rank()}")
        own = register(type("Own", (type(plain),), {}))
        saved, expected = (serialize(each) for each in (self.hvd.DistributedOptimizer(own(0.1)), own(0.1)))
        for name in ("class_name", "registered_name"):
            assert saved.get(name) == expected.get(name), (saved, expected)

    def expect_no_loss_scaling_around(self, scaling, set_policy):
        """A rank cannot decide alone whether to take a step; the first step says so, on every rank."""
        x, y = self.data()
        y = y + (float("inf") if self.hvd.rank() == 0 else 0)
        inside_out = scaling(self.hvd.DistributedOptimizer(self.keras.optimizers.SGD(0.1)))
        error = raises(ValueError, self.fit, self.build(), inside_out, self.own(x), self.own(y), ROWS)
        assert "the other way round" in str(error)
        set_policy("mixed_float16")
        try:
            model = self.build()
            optimizer = self.hvd.DistributedOptimizer(self.keras.optimizers.SGD(0.1))
            error = raises(ValueError, self.fit, model, optimizer, self.own(x), self.own(y), ROWS)
            assert "auto_scale_loss" in str(error)
            before = model.get_weights()
            optimizer = self.hvd.DistributedOptimizer(scaling(self.keras.optimizers.SGD(0.1)))
            self.fit(model, optimizer, self.own(x)[:ROWS], self.own(y)[:ROWS], ROWS, epochs=1)
            for mine, theirs in zip(model.get_weights(), before):
                close(mine, theirs)  # all ranks leave out the step in which one has overflowed
        finally:
            set_policy("float32")


def same_weights(model, other, tolerance=1e-5):
    for mine, theirs in zip(model.get_weights(), other.get_weights()):
        close(mine, theirs, tolerance)
