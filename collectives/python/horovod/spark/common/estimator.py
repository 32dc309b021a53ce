# SPDX-License-Identifier: Apache-2.0
"""Estimators and their models: everything but the framework."""

from __future__ import annotations

import inspect
import logging
import secrets
import time
import types
from typing import Any, Iterator, Tuple

import numpy as np
import pandas as pd
from pyspark.ml import Estimator, Model

from horovod.spark.common import data
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.params import Parameters, parameters
from horovod.spark.common.store import Store

_log = logging.getLogger(__name__)

_WHOLE_NUMBERS = (
    "num_proc batch_size val_batch_size epochs partitions_per_process train_steps_per_epoch validation_steps_per_epoch "
    "train_reader_num_workers val_reader_num_workers"
)
#: What Horovod's estimators have and these do not: the values that change nothing, and why others are refused.
_REFUSED = {
    "compress_sparse_cache": ((None, False), "sparse vectors are stored as arrays"),
    "reader_pool_type": ((None, "thread"), "row groups are read by threads"),
    "mp_start_method": ((None,), "the readers are threads"),
    "transformation_edit_fields": ((None,), "columns have the types that transformation_fn gives them"),
    "transformation_removed_fields": ((None,), "columns other than features and labels are not used"),
}


@parameters(
    num_proc=(None, "the number of ranks; Spark's default parallelism unless given"),
    backend=(None, "a Backend that runs the ranks, in place of num_proc"),
    backend_env=(None, "variables for the ranks"),
    store=(None, "the Store for data and checkpoints"),
    model=(None, "the model to train"),
    optimizer=(None, "the optimizer, with the learning rate of one rank"),
    loss=(None, "the loss, or one for each label"),
    loss_weights=(None, "a factor for the loss of each label"),
    metrics=(None, "functions that are evaluated with the loss"),
    feature_cols=(None, "the columns that the model gets"),
    label_cols=(None, "the columns that its outputs are compared with"),
    sample_weight_col=(None, "a column with a factor for the loss of each row"),
    validation=(None, "the fraction of rows to validate with, or a column that is true for those"),
    batch_size=(32, "rows in a batch of a rank"),
    val_batch_size=(None, "the same for validation; batch_size unless given"),
    epochs=(1, "how many epochs to train in all"),
    train_steps_per_epoch=(None, "steps of an epoch; unless given, each row is used once"),
    validation_steps_per_epoch=(None, "the same for validation"),
    verbose=(1, "0 prints nothing, 1 and 2 the losses of each epoch"),
    shuffle=(True, "whether to mix the rows"),
    shuffle_buffer_size=(None, "how many rows to mix at a time: those of 256 MiB unless given; 0 as shuffle=False"),
    random_seed=(None, "makes the split and the order of rows and the framework's random numbers the same each time"),
    partitions_per_process=(10, "how many Parquet files to write for each rank"),
    run_id=(None, "the name of the run in the store; an earlier run of this name is resumed"),
    transformation_fn=(None, "changes the rows as they are read"),
    train_reader_num_workers=(2, "how many row groups a rank reads ahead, each in a thread"),
    val_reader_num_workers=(2, "the same for validation"),
    inmemory_cache_all=(False, "whether a rank keeps its rows in memory after the first epoch"),
    use_gpu=(True, "whether ranks use a GPU where there is one"),
    gradient_compression=(None, "a Compression for the gradients"),
    **{name: (None, f"refused: {reason}") for name, (_, reason) in _REFUSED.items()},
)
class HorovodEstimator(Parameters, Estimator):
    """Trains a model on ranks in tasks of Spark; docs/howto/spark.md describes the parameters."""

    def fit_on_parquet(self, params: dict[Any, Any] | None = None) -> Any:
        """Trains on the Parquet files that are in the data paths of the store; returns the model.

        Where `validation` is a number above 0, the files at get_val_data_path() are those to validate with; ValueError
        for a column. Blocks, and raises, as fit() does.
        """
        if params:
            return self.copy(params).fit_on_parquet()
        self._check()
        store = self.getOrDefault("store")
        if isinstance(self.getOrDefault("validation"), str):
            raise ValueError("validation is a column: fit_on_parquet() validates with the files at get_val_data_path()")
        train = data.files_of(store, store.get_train_data_path())
        validation = data.files_of(store, store.get_val_data_path()) if self.getOrDefault("validation") else []
        return self._train(self._new_run_id(), train, validation)

    def _fit(self, df):
        self._check()
        store, validation = self.getOrDefault("store"), self.getOrDefault("validation")
        run_id = self._new_run_id()
        folder = f"{run_id}-{secrets.token_hex(4)}"
        try:
            train, held_back = data.write(
                df,
                store,
                folder,
                self._columns(),
                validation,
                self.getOrDefault("random_seed"),
                self._backend().num_processes() * self.getOrDefault("partitions_per_process"),
                check=self.getOrDefault("transformation_fn") is None,
            )
            if not train:
                raise ValueError("the DataFrame has no rows to train on")
            if validation and not held_back:
                raise ValueError(f"validation={validation!r} selects no rows")
            return self._train(run_id, train, held_back)
        finally:
            for path in (store.get_train_data_path(), store.get_val_data_path()):
                store.delete(f"{path}/{folder}")

    def _new_run_id(self):
        return self.getOrDefault("run_id") or time.strftime("run-%Y%m%d-%H%M%S-") + secrets.token_hex(3)

    def _columns(self):
        weight = self.getOrDefault("sample_weight_col")
        names = [*self.getOrDefault("feature_cols"), *self.getOrDefault("label_cols"), *([weight] if weight else [])]
        return list(dict.fromkeys(names))

    def _backend(self):
        return self.getOrDefault("backend") or SparkBackend(self.getOrDefault("num_proc"))

    def _check(self):
        """ValueError or TypeError for a parameter that is missing or wrong."""
        values = self.values()
        for name in ("store", "model", "optimizer", "loss", "feature_cols", "label_cols"):
            if values[name] is None and not (name == "loss" and values.get("loss_constructors")):
                raise ValueError(f"{type(self).__name__}: {name} is missing")
        if not isinstance(values["store"], Store):
            raise TypeError(f"store is of {type(values['store'])}: expected a Store; Store.create(PREFIX) makes one")
        for name in ("feature_cols", "label_cols"):
            if isinstance(values[name], str) or not values[name]:
                raise ValueError(f"{name}={values[name]!r}: expected a list of columns")
        for name in _WHOLE_NUMBERS.split():
            value = values[name]
            if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < 1):
                raise ValueError(f"{name}={value!r}: expected a whole number, 1 or more")
        if values["num_proc"] is not None and values["backend"] is not None:
            raise ValueError("num_proc and backend: a backend has its own number of ranks; give one of the two")
        validation = values["validation"]
        if validation is not None and not isinstance(validation, str) and not 0 <= validation < 1:
            raise ValueError(f"validation={validation!r}: expected a fraction below 1, or the name of a column")
        for name, (harmless, reason) in _REFUSED.items():
            if values[name] not in harmless:
                raise ValueError(f"{name}={values[name]!r} is not supported: {reason}")

    def _train(self, run_id, train, validation):
        """Trains on these files and returns the model."""
        store, columns = self.getOrDefault("store"), self._columns()
        names = columns if self.getOrDefault("transformation_fn") is None else []
        job = types.SimpleNamespace(**{**self.values(), "backend": None, "run_id": run_id})
        job.checkpoint = store.get_checkpoint_path(run_id)
        job.train_groups = data.row_groups_of(store, train, names)
        job.validation_groups = data.row_groups_of(store, validation, names)
        job.columns = columns
        if job.random_seed is None:
            job.random_seed = secrets.randbits(31)
        if store.exists(job.checkpoint):
            _log.warning("run %s: continues from %s", run_id, job.checkpoint)
        # The ranks have the model, its optimizer and its losses of one pickle, and so their common parameters.
        remote = self._prepare(job)
        outcome = self._backend().run(remote, args=(job,), env=self.getOrDefault("backend_env"))[0]
        return self._made(job, outcome, store.read(job.checkpoint))


def reader(job: Any, rank: int, size: int, is_training: bool, float_type: Any) -> tuple[data.Reader, int] | None:
    """What a rank reads the data with, and the steps of an epoch; None for validation where there is none."""
    groups = job.train_groups if is_training else job.validation_groups
    if not groups:
        return None
    share = data.Share(groups, rank, size)
    batch_size = job.batch_size if is_training else job.val_batch_size or job.batch_size
    steps = share.steps(batch_size, job.train_steps_per_epoch if is_training else job.validation_steps_per_epoch)
    return data.Reader(
        job.store,
        share,
        job.columns,
        batch_size,
        shuffle_rows=job.shuffle_buffer_size if is_training and job.shuffle else 0,
        seed=job.random_seed + rank,
        workers=job.train_reader_num_workers if is_training else job.val_reader_num_workers,
        keep=job.inmemory_cache_all,
        transform=_transformation(job.transformation_fn),
        float_type=float_type,
    ), steps


def _transformation(given):
    """The function that changes rows. One without parameters is asked for it, once in each rank."""
    return given() if given is not None and not inspect.signature(given).parameters else given


@parameters(
    model=(None, "the trained model"),
    feature_columns=(None, "the columns that the model gets"),
    label_columns=(None, "the columns that it was trained to predict"),
    output_cols=(None, "the columns that transform() adds: LABEL__output unless given"),
    batch_size=(32, "rows that the model gets at a time"),
    history=(None, "losses and metrics of each epoch"),
    run_id=(None, "the name of the run in the store"),
    output_is_scalar=(None, "for each output whether it is one number"),
)
class HorovodModel(Parameters, Model):
    """A trained model, whose transform() adds its outputs to a DataFrame."""

    def _transform(self, df):
        from pyspark.sql import functions

        features, labels = self.getOrDefault("feature_columns"), self.getOrDefault("label_columns")
        names = self.getOrDefault("output_cols") or [f"{label}__output" for label in labels]
        if len(names) != len(labels):
            raise ValueError(f"output_cols={names!r}: expected a name for each of {len(labels)} labels")
        data.need_columns(df.columns, features, "the DataFrame")
        is_scalar = self.getOrDefault("output_is_scalar") or [False] * len(labels)
        fields = [f"o{index} {'double' if each else 'array<double>'}" for index, each in enumerate(is_scalar)]
        predict = _udf(self._predictor(), features, is_scalar, self.getOrDefault("batch_size"))
        outputs = functions.pandas_udf(predict, ", ".join(fields))(*(_plain(df, name) for name in features))
        # One call for all outputs, also where the optimizer would rather repeat it.
        temporary = "__outputs"
        df = df.withColumn(temporary, outputs)
        for index, name in enumerate(names):
            df = df.withColumn(name, df[temporary][f"o{index}"])
        return df.drop(temporary)


def _plain(df, name):
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT

    column = df[f"`{name}`"]
    return vector_to_array(column) if isinstance(df.schema[name].dataType, VectorUDT) else column


def _udf(predictor, features, is_scalar, batch_size):
    """The function of Spark's batches of columns that answers their outputs."""
    make, arguments = predictor

    def predict(batches):
        outputs_of, float_type = make(*arguments)
        for columns in batches:
            columns = (columns,) if isinstance(columns, pd.Series) else columns  # a single one is not within a tuple
            inputs = data.arrays_of(list(columns), features, float_type)
            rows = len(columns[0])
            begins = range(0, rows, batch_size)
            parts = [outputs_of([array[begin : begin + batch_size] for array in inputs]) for begin in begins]
            frame = {}
            for index, scalar in enumerate(is_scalar):
                output = np.concatenate([part[index] for part in parts]) if parts else np.empty((0, 1))
                output = output.reshape(rows, -1 if rows else 1).astype(np.float64)
                frame[f"o{index}"] = output[:, 0] if scalar else list(output)
            yield pd.DataFrame(frame)

    predict.__annotations__ = {"batches": Iterator[Tuple[pd.Series, ...]], "return": Iterator[pd.DataFrame]}
    return predict
