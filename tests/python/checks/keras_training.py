# SPDX-License-Identifier: Apache-2.0
"""horovod.keras with the backend that KERAS_BACKEND names: training on several ranks gives what one
process gives on all ranks' rows."""

import copy
import os
import pathlib
import pickle
import tempfile

import keras
import numpy as np

import horovod.keras as hvd
from support.expect import close, raises
from support.keras_training import ROWS, Training, same_weights

STEPS = 5
training = Training(keras, hvd, STEPS)
data, own, build, fit, whole = (training.data, training.own, training.build, training.fit, training.whole)


class Skip(Exception):
    pass


def array(variable):
    return np.asarray(keras.ops.convert_to_numpy(variable))


def check_sgd_is_the_same():
    x, y = data()
    for momentum in (0.0, 0.9):
        expected = whole(keras.optimizers.SGD(0.1, momentum=momentum))
        model = build(seed=hvd.rank())
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=momentum))
        assert isinstance(optimizer, keras.optimizers.SGD)
        assert type(optimizer).__name__ == "SGD"
        fit(model, optimizer, own(x), own(y), ROWS, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        same_weights(model, expected)


def check_options():
    x, y = data()
    model = build()
    for options, tolerance in (
        ({"groups": 2}, 1e-5),
        ({"num_groups": 1}, 1e-5),
        ({"gradient_predivide_factor": 2.0}, 1e-5),
        ({"groups": [model.trainable_variables[:2]]}, 1e-5),
        ({"compression": hvd.Compression.fp16}, 2e-3),
    ):
        model = build()
        if isinstance(options.get("groups"), list):
            options = {"groups": [model.trainable_variables[:2]]}
        expected = whole(keras.optimizers.Adam(0.01))
        fit(model, hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), **options), own(x), own(y), ROWS)
        same_weights(model, expected, tolerance)


def check_sum():
    x, y = data()
    expected = whole(keras.optimizers.SGD(0.05 * hvd.size()))
    model = build()
    fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), op=hvd.Sum), own(x), own(y), ROWS)
    same_weights(model, expected)
    for op in (hvd.Max, hvd.Adasum):
        raises(ValueError, hvd.DistributedOptimizer, keras.optimizers.SGD(0.1), op=op)
    raises(RuntimeError, hvd.broadcast_global_variables, 0)
    raises(ValueError, hvd.DistributedOptimizer, keras.optimizers.SGD(0.1), op=hvd.Sum, gradient_predivide_factor=2.0)
    raises(ValueError, hvd.DistributedOptimizer, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))


def check_clipping_comes_after():
    x, y = data()
    expected = whole(keras.optimizers.SGD(0.5, global_clipnorm=0.1))
    model = build()
    fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.5, global_clipnorm=0.1)), own(x), own(y), ROWS)
    same_weights(model, expected)


def check_loss_scaling():
    """The reduced gradients decide, on all ranks alike, whether a step is skipped."""
    x, y = data()
    expected = whole(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0))
    model = build()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0)
    )
    fit(model, optimizer, own(x), own(y), ROWS)
    same_weights(model, expected)
    before = model.get_weights()
    bad = own(y).copy()
    if hvd.rank() == hvd.size() - 1:
        bad[0] = np.inf
    model.fit(own(x)[:ROWS], bad[:ROWS], batch_size=ROWS, epochs=1, verbose=0)
    for mine, theirs in zip(model.get_weights(), before):
        close(mine, theirs)
    raises(
        ValueError,
        hvd.DistributedOptimizer,
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        backward_passes_per_step=2,
    )


def check_no_loss_scaling_with_local_layers():
    scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    error = raises(ValueError, hvd.PartialDistributedOptimizer, scaling, local_layers=build().layers[0])
    assert "scales the loss" in str(error)


def check_no_loss_scaling_around():
    training.expect_no_loss_scaling_around(keras.optimizers.LossScaleOptimizer, keras.config.set_dtype_policy)


def check_identity():
    training.expect_identity()


def check_copies():
    x, y = data()
    for duplicate in (copy.copy, copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))):
        optimizer = duplicate(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
        model = build()
        fit(model, optimizer, own(x), own(y), ROWS)
        same_weights(model, whole(keras.optimizers.SGD(0.1, momentum=0.9)))


def check_backward_passes_per_step():
    """Half of the rows in each pass, both passes before a step."""
    x, y = data()
    expected = whole(keras.optimizers.SGD(0.1))
    for averaged, rate in ((True, 0.1), (False, 0.05)):
        model = build()
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate), backward_passes_per_step=2, average_aggregated_gradients=averaged
        )
        fit(model, optimizer, own(x), own(y), ROWS // 2)
        same_weights(model, expected)
    built = keras.optimizers.SGD(0.1)
    built.build(build().trainable_variables)
    raises(ValueError, hvd.DistributedOptimizer, built, backward_passes_per_step=2)
    raises(ValueError, hvd.DistributedOptimizer, keras.optimizers.SGD(0.1), backward_passes_per_step=0)


def check_local_layers():
    """The gradients of a local layer stay each rank's own."""
    x, y = data()
    model = build()
    local = model.layers[0]
    start = [array(weight) for weight in model.trainable_variables]
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.1), local_layers=[local], scale_local_gradients=False
    )
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(own(x)[:ROWS], own(y)[:ROWS], batch_size=ROWS, epochs=1, verbose=0)
    alone = build()
    alone.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    alone.fit(own(x)[:ROWS], own(y)[:ROWS], batch_size=ROWS, epochs=1, verbose=0)
    together = build()
    together.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    rows = ROWS * hvd.size()
    together.fit(x[:rows], y[:rows], batch_size=rows, epochs=1, verbose=0)
    for mine, theirs in zip(model.layers[0].get_weights(), alone.layers[0].get_weights()):
        close(mine, theirs, 1e-5)
    for mine, theirs in zip(model.layers[1].get_weights(), together.layers[1].get_weights()):
        close(mine, theirs, 1e-5)
    assert not np.allclose(start[0], array(model.trainable_variables[0]))


def check_broadcast_callback():
    """Also where one rank alone comes with a restored optimizer."""
    x, y = data()
    model = build(seed=hvd.rank())
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    if hvd.rank() == 0:
        fit(model, optimizer, x[:ROWS], y[:ROWS], ROWS, epochs=1)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    fit(model, hvd.DistributedOptimizer(optimizer), own(x), own(y), ROWS, [callback], epochs=1)
    assert callback.broadcast_done
    mine = [array(each) for each in model.weights + list(model.optimizer.variables)]
    everywhere = hvd.allgather_object(mine)
    for theirs in everywhere:
        for one, other in zip(mine, theirs):
            close(one, other, 1e-5)


def check_metric_average_callback():
    x, y = data()
    model = build()
    seen = {}

    class After(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen[epoch] = dict(logs)

    class Before(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["mine"] = float(hvd.rank())
            logs["note"] = "text"

    history = fit(
        model,
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        own(x),
        own(y),
        ROWS,
        [Before(), hvd.callbacks.MetricAverageCallback(), After()],
        epochs=2,
    )
    close(seen[1]["mine"], (hvd.size() - 1) / 2)
    assert len(set(hvd.allgather_object(seen[1]["loss"]))) == 1
    close(history.history["loss"][1], seen[1]["loss"])


def rates(callback, epochs=6, steps=2, optimizer=None):
    """The learning rate of every batch."""
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_batch_begin(self, batch, logs=None):
            seen.append(float(array(self.model.optimizer.learning_rate)))

    x, y = data()
    optimizer = optimizer or hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3))
    fit(build(), optimizer, x[: steps * 4], y[: steps * 4], 4, [callback, Watch()], epochs=epochs)
    return seen


def check_learning_rate_schedule():
    make = hvd.callbacks.LearningRateScheduleCallback
    close(
        rates(make(1e-3, 0.5, start_epoch=2, end_epoch=5)), np.repeat([1e-3, 1e-3, 1e-3, 5e-4, 2.5e-4, 2.5e-4], 2), 1e-9
    )
    close(rates(make(2e-3, lambda epoch: 1 / (1 + epoch)), epochs=3), np.repeat([2e-3, 1e-3, 2e-3 / 3], 2), 1e-9)
    close(rates(make(1e-3, lambda epoch: 1 + epoch, staircase=False), epochs=2), [1e-3, 1.5e-3, 2e-3, 2.5e-3], 1e-9)
    close(
        rates(make(1e-3, lambda epoch: 1 + epoch, staircase=False, steps_per_epoch=2), epochs=1), [1e-3, 1.5e-3], 1e-9
    )


def check_learning_rate_warmup():
    size = hvd.size()
    seen = rates(hvd.callbacks.LearningRateWarmupCallback(1e-3, warmup_epochs=2, verbose=1), epochs=3)
    expected = [1e-3 / size * (epoch * (size - 1) / 2 + 1) for epoch in (0.5, 1.0, 1.5, 2.0)]
    close(seen, [*expected, 0.001, 0.001], 1e-9)


def check_momentum_correction():
    """One batch at the new rate uses what momentum held in the new rate's unit."""
    x, y = data()
    trained = {}
    for corrected in (True, False):
        model = build()
        callback = hvd.callbacks.LearningRateScheduleCallback(
            0.1, lambda epoch: 0.5**epoch, momentum_correction=corrected
        )
        fit(
            model,
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
            x[:4],
            y[:4],
            4,
            [callback],
            epochs=2,
        )
        trained[corrected] = model.get_weights()
    by_hand = build()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    fit(by_hand, optimizer, x[:4], y[:4], 4, epochs=1)
    for slot in by_hand.optimizer.momentums:
        slot.assign(array(slot) * 0.5)
    by_hand.optimizer.learning_rate = 0.05
    by_hand.fit(x[:4], y[:4], batch_size=4, epochs=1, verbose=0, shuffle=False)
    for mine, theirs in zip(trained[True], by_hand.get_weights()):
        close(mine, theirs, 1e-5)
    assert any(not np.allclose(a, b) for a, b in zip(trained[True], trained[False]))


def check_saving_and_loading():
    x, y = data()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model = build()
        fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), own(x), own(y), ROWS, epochs=1)
        model.save(path)
        plain = keras.models.load_model(path)  # without this package
        assert type(plain.optimizer) is type(keras.optimizers.SGD(0.1))
        loaded = hvd.load_model(path)
        same_weights(loaded, model)
        for mine, theirs in zip(loaded.optimizer.variables, model.optimizer.variables):
            close(array(mine), array(theirs))
        for each in (model, loaded):
            each.fit(own(x), own(y), batch_size=ROWS, epochs=1, verbose=0, shuffle=False)
        same_weights(loaded, model)
        everywhere = hvd.allgather_object(loaded.get_weights())
        for theirs in everywhere:
            for one, other in zip(loaded.get_weights(), theirs):
                close(one, other, 1e-6)


def check_best_model_checkpoint():
    x, y = data()
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    path = pathlib.Path(folder) / "best.keras"
    model = build()
    callback = hvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=str(path))
    fit(
        model,
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        own(x),
        own(y),
        ROWS,
        [hvd.callbacks.MetricAverageCallback(), callback],
    )
    hvd.allgather_object(None)
    assert path.exists()
    same_weights(keras.models.load_model(str(path)), model)
    hvd.allgather_object(None)
    if hvd.rank() == 0:
        path.unlink()
        os.rmdir(folder)
    raises(ValueError, hvd.callbacks.BestModelCheckpoint().on_train_begin)


def check_values():
    size, rank = hvd.size(), hvd.rank()
    close(hvd.allreduce(rank + 1.0), (size + 1) / 2)
    close(hvd.allreduce(float(rank), op=hvd.Sum), sum(range(size)))
    close(hvd.allreduce(np.full(3, rank), average=False), np.full(3, sum(range(size))))
    close(
        hvd.allreduce(np.full(3, float(rank)), op=hvd.Max, prescale_factor=2.0, compression=hvd.Compression.fp16),
        np.full(3, 2 * (size - 1)),
    )
    tensor = keras.ops.convert_to_tensor(np.full(2, rank, np.float32))
    result = hvd.allreduce(tensor, op=hvd.Sum)
    assert type(result).__module__.split(".")[0] == type(tensor).__module__.split(".")[0]
    close(array(result), np.full(2, sum(range(size))))
    close(hvd.allgather(np.array([rank])), range(size))
    close(hvd.broadcast(np.array([rank + 5]), size - 1), [size + 4])
    close(hvd.reducescatter(np.arange(float(size)), op=hvd.Sum), [rank * size])


def check_compression():
    values = keras.ops.convert_to_tensor(np.array([1.5, -2.25], np.float32))
    for choice, dtype in (
        (hvd.Compression.fp16, "float16"),
        (hvd.Compression.bf16, "bfloat16"),
        (hvd.Compression.none, "float32"),
    ):
        wire, context = choice.compress(values)
        assert keras.backend.standardize_dtype(wire.dtype) == dtype
        close(array(choice.decompress(wire, context)), [1.5, -2.25])
    integers = keras.ops.convert_to_tensor(np.arange(3))
    assert hvd.Compression.fp16.compress(integers) == (integers, None)


def check_elastic():
    x, y = data()
    model = build(seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    model.compile(optimizer=optimizer, loss="mse")
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    epochs, batches = [], []

    class Watch(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            batches.append(state.batch)

        def on_epoch_end(self, epoch, logs=None):
            epochs.append(state.epoch)

    @hvd.elastic.run
    def train(state):
        state.model.fit(
            own(x),
            own(y),
            batch_size=ROWS,
            epochs=3 - state.epoch,
            verbose=0,
            shuffle=False,
            callbacks=[
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
                Watch(),
            ],
        )

    train(state)
    assert epochs == [1, 2, 3] and state.epoch == 3 and state.batch == 0
    assert batches == list(range(STEPS)) * 3
    everywhere = hvd.allgather_object(model.get_weights())
    for theirs in everywhere:
        for one, other in zip(model.get_weights(), theirs):
            close(one, other, 1e-6)
    before = [array(variable) for variable in model.weights + list(optimizer.variables)]
    model.fit(own(x), own(y), batch_size=ROWS, epochs=1, verbose=0)
    state.epoch = 9
    state.restore()
    after = [array(variable) for variable in model.weights + list(optimizer.variables)]
    for one, other in zip(before, after):
        close(one, other)
    assert state.epoch == 3


def check_frameworks_that_were_not_asked_for():
    """horovod.keras imports no framework that Keras has not imported."""
    import subprocess
    import sys

    program = (
        "import sys, keras; before = {name.split('.')[0] for name in sys.modules}\n"
        "import horovod.keras as hvd; hvd.callbacks, hvd.elastic, hvd.DistributedOptimizer\n"
        "new = {name.split('.')[0] for name in sys.modules} - before\n"
        "print(sorted(new & {'tensorflow', 'jax', 'torch', 'mxnet'}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert answer.stdout.strip() == "[]", answer.stdout
