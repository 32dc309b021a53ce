# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.keras, and what of horovod.tensorflow takes Keras: with the tf.keras that
TensorFlow has (Keras 3), and with tf_keras (Keras 2) under TF_USE_LEGACY_KERAS=1."""

import os
import tempfile

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
from support.expect import close, raises
from support.keras_training import ROWS, Training, same_weights

keras = tf.keras
GENERATION = 2 if ".engine." in keras.layers.Layer.__module__ else 3
STEPS = 4
training = Training(keras, hvd, STEPS)
data, own, build, fit, whole = (training.data, training.own, training.build, training.fit, training.whole)


class Skip(Exception):
    pass


def check_training_is_the_same():
    x, y = data()
    expected = whole(keras.optimizers.SGD(0.1, momentum=0.9))
    for wrap in (hvd.DistributedOptimizer, hvd_tf.DistributedOptimizer):
        for options in ({}, {"groups": 2}, {"gradient_predivide_factor": 2.0}):
            model = build(seed=hvd.rank())
            optimizer = wrap(keras.optimizers.SGD(0.1, momentum=0.9), **options)
            hvd.broadcast_variables(model.variables, root_rank=0)
            fit(
                model,
                optimizer,
                own(x),
                own(y),
                ROWS,
                [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
            )
            same_weights(model, expected)


def check_eager_training():
    x, y = data()
    expected = whole(keras.optimizers.Adam(0.01))
    model = build()
    fit(model, hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), own(x), own(y), ROWS, run_eagerly=True)
    same_weights(model, expected)


def check_steps_in_one_execution():
    x, y = data()
    expected = whole(keras.optimizers.SGD(0.1))
    model = build()
    fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), own(x), own(y), ROWS, steps_per_execution=2)
    same_weights(model, expected)


def check_legacy_optimizer_of_keras2():
    if GENERATION != 2:
        raise Skip("Keras 3 has no legacy optimizers")
    x, y = data()
    expected = whole(keras.optimizers.legacy.SGD(0.1, momentum=0.9))
    for run_eagerly in (False, True):
        model = build()
        fit(
            model,
            hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(0.1, momentum=0.9)),
            own(x),
            own(y),
            ROWS,
            run_eagerly=run_eagerly,
        )
        same_weights(model, expected)


def check_backward_passes_per_step():
    x, y = data()
    expected = whole(keras.optimizers.SGD(0.1, momentum=0.9))
    for averaged, rate in ((True, 0.1), (False, 0.05)):
        model = build()
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate, momentum=0.9), backward_passes_per_step=2, average_aggregated_gradients=averaged
        )
        fit(model, optimizer, own(x), own(y), ROWS // 2)
        same_weights(model, expected)


def check_sparse_gradients():
    def model_of():
        keras.utils.set_random_seed(2)
        return keras.Sequential(
            [
                keras.layers.Input((3,), dtype="int32"),
                keras.layers.Embedding(10, 4),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )

    generator = np.random.default_rng(8)
    x = generator.integers(0, 10, size=(2 * 4 * hvd.size(), 3)).astype(np.int32)
    y = generator.normal(size=(len(x), 1)).astype(np.float32)
    mine = [each.reshape(2, hvd.size(), 4, -1)[:, hvd.rank()].reshape(8, -1) for each in (x, y)]
    expected = model_of()
    fit(expected, keras.optimizers.SGD(0.1), x, y, 4 * hvd.size())
    for options in ({}, {"sparse_as_dense": True}):
        model = model_of()
        fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options), *mine, 4)
        same_weights(model, expected)


def check_adasum_is_refused():
    raises(ValueError, hvd_tf.DistributedOptimizer, keras.optimizers.SGD(0.1), op=hvd_tf.Adasum)
    raises(ValueError, hvd.DistributedOptimizer, keras.optimizers.SGD(0.1), op=hvd_tf.Min)
    raises(ValueError, hvd_tf.DistributedOptimizer, "sgd")


def check_gradient_tape_training():
    """A loop of one's own: tape, optimizer, metric."""
    x, y = data()
    expected = whole(keras.optimizers.SGD(0.1), epochs=1)
    model = build(seed=hvd.rank())
    optimizer = keras.optimizers.SGD(0.1)
    hvd_tf.broadcast_variables(model.trainable_variables, root_rank=0)

    @tf.function
    def step(rows, wanted):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows, training=True) - wanted) ** 2)
        tape = hvd_tf.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, tape_sources)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    tape_sources = [
        getattr(variable, "value", variable) if GENERATION == 3 else variable for variable in model.trainable_variables
    ]
    for start in range(0, STEPS * ROWS, ROWS):
        step(own(x)[start : start + ROWS], own(y)[start : start + ROWS])
    same_weights(model, expected)


def check_partial_optimizer():
    model = build()
    x, y = data()
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=model.layers[0])
    fit(model, optimizer, own(x), own(y), ROWS, epochs=1)
    last = hvd.allgather_object(model.layers[-1].get_weights()[1])
    close(last[0].shape, (2,))


def check_sync_batch_normalization():
    """Against BatchNormalization over all ranks' rows in one process; batches differ in size."""
    raises(ValueError, hvd_tf.SyncBatchNormalization, fused=True)
    generator = np.random.default_rng(4)
    for shape in ((3,), (5, 3), (4, 2, 3)):
        rows = [generator.normal(3, 2, size=(rank + 2, *shape)).astype(np.float32) for rank in range(hvd.size())]
        weights = [generator.normal(size=each.shape).astype(np.float32) for each in rows]
        plain = keras.layers.BatchNormalization(momentum=0.5)
        ours = hvd_tf.SyncBatchNormalization(momentum=0.5)
        plain.build((None, *shape))
        ours.build((None, *shape))
        everything, mine = tf.constant(np.concatenate(rows)), tf.constant(rows[hvd.rank()])
        start = sum(len(each) for each in rows[: hvd.rank()])
        end = start + len(rows[hvd.rank()])
        with tf.GradientTape() as tape:
            tape.watch(everything)
            expected = plain(everything, training=True)
            loss = tf.reduce_sum(expected * np.concatenate(weights))
        wanted = tape.gradient(loss, everything)

        def run(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                output = ours(x, training=True)
                loss = tf.reduce_sum(output * weights[hvd.rank()])
            return output, tape.gradient(loss, x)

        output, gradient = tf.function(run)(mine)
        close(output, expected[start:end], 1e-4)
        close(gradient, wanted[start:end], 1e-3)
        close(ours.moving_mean, plain.moving_mean, 1e-4)
        if GENERATION == 3 or len(shape) == 1:  # Keras 2's fused kernel corrects the variance
            close(ours.moving_variance, plain.moving_variance, 1e-4)
        output, gradient = run(mine)
        close(output, expected[start:end], 1e-4)
        close(ours(mine, training=False).shape, mine.shape)


def check_saving_and_loading():
    x, y = data()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras" if GENERATION == 3 else "model.h5")
        model = build()
        fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), own(x), own(y), ROWS, epochs=1)
        model.save(path)
        loaded = hvd.load_model(path)
        for each in (model, loaded):
            each.fit(own(x), own(y), batch_size=ROWS, epochs=1, verbose=0, shuffle=False)
        same_weights(loaded, model)
        for theirs in hvd.allgather_object(loaded.get_weights()):
            for one, other in zip(loaded.get_weights(), theirs):
                close(one, other, 1e-5)


def check_identity():
    training.expect_identity()


def check_no_loss_scaling_around():
    if GENERATION == 3:
        training.expect_no_loss_scaling_around(keras.optimizers.LossScaleOptimizer, keras.config.set_dtype_policy)
    else:
        mixed = keras.mixed_precision
        training.expect_no_loss_scaling_around(mixed.LossScaleOptimizer, mixed.set_global_policy)


def check_learning_rate_callbacks():
    x, y = data()
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_batch_begin(self, batch, logs=None):
            seen.append(float(self.model.optimizer.learning_rate.numpy()))

    fit(
        build(),
        hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3, momentum=0.9)),
        x[:16],
        y[:16],
        8,
        [
            hvd.callbacks.LearningRateWarmupCallback(1e-3, warmup_epochs=1),
            hvd.callbacks.LearningRateScheduleCallback(1e-3, 0.1, start_epoch=1),
            Watch(),
        ],
        epochs=3,
    )
    size = hvd.size()
    close(seen, [1e-3 / size * (0.5 * (size - 1) + 1), 1e-3, 1e-3, 1e-3, 1e-4, 1e-4], 1e-8)


def check_values():
    size, rank = hvd.size(), hvd.rank()
    close(hvd.allreduce(rank + 1.0), (size + 1) / 2)
    result = hvd.allreduce(tf.fill([2], float(rank)), op=hvd.Sum)
    assert isinstance(result, tf.Tensor)
    close(result, np.full(2, sum(range(size))))
    close(hvd.allgather(tf.constant([rank])), range(size))
    close(hvd.broadcast(tf.constant([rank]), 0), [0])
    close(hvd.reducescatter(tf.range(size), op=hvd.Sum), [rank * size])


def check_elastic():
    x, y = data()
    model = build(seed=hvd.rank())
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    model.fit(own(x)[:ROWS], own(y)[:ROWS], batch_size=ROWS, epochs=1, verbose=0)
    for make in (hvd.elastic.KerasState, hvd_tf.elastic.TensorFlowKerasState):
        state = make(model, epoch=hvd.rank())
        state.sync()
        assert state.epoch == 0
        before = model.get_weights()
        for theirs in hvd.allgather_object(before):
            for one, other in zip(before, theirs):
                close(one, other)
        model.set_weights([weight + 1 for weight in before])
        state.restore()
        for one, other in zip(before, model.get_weights()):
            close(one, other)
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            seen.append(state.batch)

    trained = hvd.elastic.run(
        lambda state: state.model.fit(
            own(x),
            own(y),
            batch_size=ROWS,
            epochs=1,
            verbose=0,
            callbacks=[
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.CommitStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                Watch(),
            ],
        )
    )
    trained(state)
    assert state.epoch == 1 and state.batch == 0 and seen == list(range(STEPS))


def check_best_model_checkpoint():
    x, y = data()
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    path = os.path.join(folder, "best.weights.h5")
    model = build()
    callback = hvd.callbacks.BestModelCheckpoint("loss", 0, True, filepath=path)
    fit(
        model,
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        own(x),
        own(y),
        ROWS,
        [hvd.callbacks.MetricAverageCallback(), callback],
    )
    hvd.allgather_object(None)
    other = build(seed=7)
    other.load_weights(path)
    same_weights(other, model)
    hvd.allgather_object(None)
    if hvd.rank() == 0:
        os.remove(path)
        os.rmdir(folder)


def check_what_is_refused_says_what_to_use():
    error = raises(TypeError, hvd.DistributedOptimizer, "sgd")
    assert "keras.optimizers.get" in str(error)
    error = raises(RuntimeError, hvd.broadcast_global_variables, 0)
    assert "broadcast_variables" in str(error)
