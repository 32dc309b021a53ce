# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator: trains a model of Keras 3, on TensorFlow, on a DataFrame of Spark."""

from __future__ import annotations

import copy
import io
import json
import os
import tempfile

import keras
import numpy as np

from horovod.spark.common.estimator import HorovodEstimator, HorovodModel, reader
from horovod.spark.common.params import parameters
from horovod.spark.task import get_available_devices

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"horovod.spark.keras needs Keras 3, and this is {keras.__version__}: pip install -U keras")


@parameters(
    callbacks=(None, "callbacks of Keras for every rank"),
    custom_objects=(None, "classes and functions of your own that the model has, by their names"),
    checkpoint_callback=(None, "refused: the store has the checkpoint of each epoch"),
)
class KerasEstimator(HorovodEstimator):
    """Trains a keras.Model on ranks in tasks of Spark; fit(df) returns a KerasModel.

    docs/howto/spark.md describes the parameters, which the constructor takes by name: those of every estimator,
    callbacks and custom_objects. The model need not be compiled: optimizer, loss and metrics are the estimator's.
    It gets an array for each of feature_cols and returns one for each of label_cols. An array with as many values as
    the model's input or output gets its shape.

    fit() blocks until all ranks have ended.

    Raises:
        ValueError: a parameter is missing or wrong, a column is missing, has null values or arrays of several lengths,
            or there are no rows to train on or to validate with
        TypeError: an unknown parameter; model or optimizer are not those of Keras
        RuntimeError: a rank failed (with its traceback)
    """

    def _check(self):
        super()._check()
        values = self.values()
        if keras.backend.backend() != "tensorflow":
            raise ValueError(f"KerasEstimator trains on TensorFlow: set KERAS_BACKEND, now {keras.backend.backend()!r}")
        if values["checkpoint_callback"]:
            raise ValueError(
                "checkpoint_callback is not supported: the store has the checkpoint of each epoch; callbacks may have "
                "a ModelCheckpoint"
            )
        if not isinstance(values["model"], keras.Model):
            raise TypeError(f"model is of {type(values['model'])}: expected a keras.Model")
        if not values["model"].built:
            raise ValueError("model has no weights yet: give it a keras.Input, or call model.build(shape)")
        if not isinstance(values["optimizer"], (str, keras.optimizers.Optimizer)):
            raise TypeError(f"optimizer is of {type(values['optimizer'])}: expected a keras.optimizers.Optimizer")
        for name, columns in (("inputs", "feature_cols"), ("outputs", "label_cols")):
            tensors = getattr(values["model"], name, None)  # a subclass of Model does not list them
            if tensors and len(tensors) != len(values[columns]):
                raise ValueError(f"the model has {len(tensors)} {name} for {len(values[columns])} {columns}")

    def _prepare(self, job):
        optimizer = keras.optimizers.get(job.optimizer)
        job.model, job.optimizer = _to_bytes(job.model), keras.optimizers.serialize(optimizer)
        job.loss, job.metrics = _packed(job.loss), _packed(job.metrics)
        return _train

    def _made(self, job, outcome, checkpoint):
        model = _from_bytes(job.model, job.custom_objects)
        state = np.load(io.BytesIO(checkpoint))
        model.set_weights(_numbered(state, "weight"))
        return KerasModel(
            model=model,
            custom_objects=job.custom_objects,
            feature_columns=job.feature_cols,
            label_columns=job.label_cols,
            batch_size=job.val_batch_size or job.batch_size,
            history=json.loads(str(state["history"])),
            run_id=job.run_id,
            output_is_scalar=outcome,
        )

    def _to_save(self):
        return _with_bytes(super()._to_save())

    def _restore(self, saved):
        super()._restore(_with_model(saved))


@parameters(custom_objects=(None, "classes and functions of your own that the model has, by their names"))
class KerasModel(HorovodModel):
    """A trained keras.Model. transform(df) adds a column for each label: a double where the model gives one number for
    a row, and an array of doubles otherwise. getModel() is the model, getHistory() a dict with a value for each epoch:
    {"loss": [0.5, ...], "val_loss": [...]}."""

    def _predictor(self):
        return _make_predictor, (_to_bytes(self.getOrDefault("model")), self.getOrDefault("custom_objects"))

    def _to_save(self):
        return _with_bytes(super()._to_save())

    def _restore(self, saved):
        super()._restore(_with_model(saved))


def _make_predictor(model, custom_objects):
    model = _from_bytes(model, custom_objects)

    def outputs_of(arrays):
        outputs = model(_one_or_several(_shaped(arrays, _shapes(model, "inputs"))), training=False)
        return [keras.ops.convert_to_numpy(output) for output in _several(outputs)]

    return outputs_of, _float_type()


def _float_type():
    return np.float64 if keras.config.floatx() == "float64" else np.float32


def _several(outputs):
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _one_or_several(arrays):
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _shapes(model, kind):
    return [tensor.shape[1:] for tensor in getattr(model, kind, None) or []]


def _shaped(arrays, shapes):
    """The arrays, in the shapes of the model where they have as many values: a column of numbers is (rows,), and the
    model's input may be (rows, 1)."""
    return [
        array.reshape(len(array), *shape)
        if None not in shape and array[:1].size == int(np.prod(shape)) * len(array[:1])
        else array
        for array, shape in zip(arrays, shapes or [(None,)] * len(arrays))
    ]


# --- objects of Keras as bytes ---------------------------------------------------------------------


def _to_bytes(model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def _from_bytes(data, custom_objects):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(data)
        return keras.saving.load_model(path, custom_objects, compile=False)


class _Config:
    """A loss or metric by its configuration."""

    def __init__(self, value):
        self._cls, self._config = type(value), value.get_config()

    def made(self):
        return self._cls.from_config(self._config)


def _packed(value):
    """Losses and metrics, alone or within lists and dicts, without the variables that they have."""
    return _mapped(
        value, lambda each: _Config(each) if isinstance(each, (keras.losses.Loss, keras.metrics.Metric)) else each
    )


def _unpacked(value):
    return _mapped(value, lambda each: each.made() if isinstance(each, _Config) else each)


def _mapped(value, function):
    if isinstance(value, dict):
        return {name: _mapped(each, function) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(each, function) for each in value]
    return function(value)


def _with_bytes(values):
    """Parameters as they are saved."""
    values = dict(values)
    if values.get("model") is not None:
        values["model"] = _to_bytes(values["model"])
    if isinstance(values.get("optimizer"), keras.optimizers.Optimizer):
        values["optimizer"] = keras.optimizers.serialize(values["optimizer"])
    return {name: _packed(value) if name in ("loss", "metrics") else value for name, value in values.items()}


def _with_model(saved):
    saved = copy.copy(saved)
    if saved.get("model") is not None:
        saved["model"] = _from_bytes(saved["model"], saved.get("custom_objects"))
    if isinstance(saved.get("optimizer"), dict):
        saved["optimizer"] = keras.optimizers.deserialize(saved["optimizer"])
    return {name: _unpacked(value) if name in ("loss", "metrics") else value for name, value in saved.items()}


def _numbered(state, name):
    return [state[f"{name}{index}"] for index in range(sum(key.startswith(name) for key in state.files))]


# --- in a rank -------------------------------------------------------------------------------------


def _train(job):
    """Trains, and writes a checkpoint after each epoch; returns which outputs are one number for each row."""
    import horovod.keras as hvd

    hvd.init()
    _choose_gpu(job, hvd)
    keras.utils.set_random_seed((job.random_seed + hvd.rank()) % 2**32)
    with keras.saving.custom_object_scope(job.custom_objects or {}):
        model = _from_bytes(job.model, job.custom_objects)
        optimizer = keras.optimizers.deserialize(job.optimizer)
    _scale_learning_rate(optimizer, hvd.size())
    compression = job.gradient_compression or hvd.Compression.none
    weight = job.sample_weight_col
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer, compression=compression),
        loss=_unpacked(job.loss),
        loss_weights=job.loss_weights,
        metrics=_unpacked(job.metrics),
    )
    history = _resume(job, model, hvd.size())

    def batches(source, steps):
        inputs, outputs = _shapes(model, "inputs"), _shapes(model, "outputs")
        while True:
            for batch in source.batches(steps):
                features = _one_or_several(_shaped([batch[name] for name in job.feature_cols], inputs))
                labels = [batch[name] for name in job.label_cols]
                # Those of classes have their own shape.
                labels = _one_or_several(_shaped(labels, outputs))
                weights = (_one_or_several([batch[weight]] * len(job.label_cols)),) if weight else ()
                yield (features, labels, *weights)

    train, steps = reader(job, hvd.rank(), hvd.size(), True, _float_type())
    validation = reader(job, hvd.rank(), hvd.size(), False, _float_type())
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    callbacks += job.callbacks or []
    if hvd.rank() == 0:
        callbacks.append(_Checkpoints(job, history, hvd.size()))
    begun = len(history["loss"]) if history else 0
    if begun < job.epochs:
        model.fit(
            batches(train, steps),
            steps_per_epoch=steps,
            epochs=job.epochs,
            initial_epoch=begun,
            shuffle=False,  # the reader does
            validation_data=batches(*validation) if validation else None,
            validation_steps=validation[1] if validation else None,
            callbacks=callbacks,
            verbose=2 if job.verbose and hvd.rank() == 0 else 0,
        )
    features = next(batches(train, steps))[0]
    outputs = _several(model(features, training=False))
    hvd.shutdown()
    return [int(np.prod(output.shape)) == int(output.shape[0]) for output in outputs]


def _choose_gpu(job, hvd):
    import tensorflow

    gpus = tensorflow.config.list_physical_devices("GPU")
    if gpus:
        number = int((get_available_devices() or [hvd.local_rank()])[0])
        tensorflow.config.set_visible_devices([gpus[number]] if job.use_gpu else [], "GPU")


def _scale_learning_rate(optimizer, factor):
    rate = optimizer.get_config()["learning_rate"]
    if isinstance(rate, dict):
        optimizer.learning_rate = _ScaledSchedule(keras.optimizers.schedules.deserialize(rate), factor)
    else:
        optimizer.learning_rate = rate * factor


class _ScaledSchedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, schedule, factor):
        self._schedule, self._factor = schedule, factor

    def __call__(self, step):
        return self._schedule(step) * self._factor

    def get_config(self):
        return {"schedule": self._schedule, "factor": self._factor}


def _resume(job, model, size):
    """Continues from the last checkpoint of the run, if there is one; returns the history so far."""
    if not job.store.exists(job.checkpoint):
        return {}
    state = np.load(io.BytesIO(job.store.read(job.checkpoint)))
    model.set_weights(_numbered(state, "weight"))
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    for variable, value in zip(optimizer.variables, _numbered(state, "optimizer")):
        variable.assign(value)
    if not isinstance(optimizer.get_config()["learning_rate"], dict):
        optimizer.learning_rate = float(optimizer.learning_rate) * size / int(state["size"])
    return json.loads(str(state["history"]))


def _array(value):
    array = keras.ops.convert_to_numpy(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array  # bfloat16, which NumPy's files do not know


class _Checkpoints(keras.callbacks.Callback):
    def __init__(self, job, history, size):
        super().__init__()
        self._job, self._history, self._size = job, history, size

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Writes the checkpoint."""
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(float(value))
        weights, variables = self.model.get_weights(), self.model.optimizer.variables
        state = {f"weight{index}": _array(value) for index, value in enumerate(weights)}
        state.update({f"optimizer{index}": _array(value) for index, value in enumerate(variables)})
        file = io.BytesIO()
        np.savez(file, history=json.dumps(self._history), size=self._size, **state)
        self._job.store.write(self._job.checkpoint, file.getvalue())
