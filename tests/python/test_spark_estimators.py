# SPDX-License-Identifier: Apache-2.0
"""Spark's estimators: DataFrames, stores and models on a real Spark with two executors."""

import io
import itertools
import pathlib
import shutil
import sys

import pytest

from support import engines, job

pytest.importorskip("pyspark", reason="Spark is not installed: scripts/ci.d/test-frameworks spark-estimators")
pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java: apt-get install default-jre-headless", allow_module_level=True)
sys.path.insert(0, str(job.PACKAGES))

import numpy as np

from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import FilesystemStore, HDFSStore, LocalStore, Store

RNG = np.random.default_rng(7)
X = RNG.normal(size=(48, 3)).round(3)
Y = X @ [1.0, -2.0, 0.5] + 0.25


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    with engines.spark_context(2, 2):
        session = SparkSession.getActiveSession()
        session.sparkContext.setLogLevel("ERROR")
        yield session


@pytest.fixture(scope="module")
def frame(session):
    """Rows with an array, its sum of weights, a vector, and a column that marks every fourth row."""
    from pyspark.ml.linalg import Vectors

    rows = [
        (x.tolist(), float(y), Vectors.sparse(3, [0, 2], [x[0], x[2]]), index % 4 == 0, 1.0 + index % 2)
        for index, (x, y) in enumerate(zip(X, Y))
    ]
    return session.createDataFrame(rows, ["x", "y", "v", "held", "w"]).cache()


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path / "store"))


# --- stores ----------------------------------------------------------------------------------------


def test_kinds_of_stores(tmp_path):
    assert type(Store.create(str(tmp_path))) is LocalStore
    assert Store.create(f"file://{tmp_path}").prefix_path == str(tmp_path)
    assert type(Store.create("s3://bucket/folder")) is FilesystemStore
    assert type(Store.create("hdfs://host:9000/folder")) is HDFSStore
    assert Store.create("dbfs:/folder").prefix_path == "/dbfs/folder"
    with pytest.raises(ValueError, match="prefix_path is missing"):
        Store()
    with pytest.raises(ValueError, match=r"s3://a/b\?region=c: .*storage_options"):
        Store.create("s3://a/b?region=c")
    with pytest.raises(ValueError, match=r"xyz://a/b: no filesystem .* 'xyz'"):
        Store.create("xyz://a/b")


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_files_of_a_store(tmp_path, scheme):
    """local:// is one that fsspec knows and PyArrow does not."""
    if scheme:
        pytest.importorskip("fsspec")
    store = Store.create(f"{scheme}{tmp_path}/store")
    path = store.get_checkpoint_path("run")
    assert path == f"{scheme}{tmp_path}/store/runs/run/checkpoint" and not store.exists(path)
    for contents in (b"first", b"second"):
        store.write(path, contents)
        assert store.exists(path) and store.read(path) == contents
    assert [each.name for each in tmp_path.glob("store/runs/run/*")] == ["checkpoint"]
    store.delete(store.get_runs_path())
    assert not store.exists(path)


# --- PyTorch ---------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def torch_estimator(torch, store, **more):
    """One that fits a linear layer, which starts with zeros."""
    from horovod.spark.torch import TorchEstimator

    model = torch.nn.Linear(3, 1)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    given = dict(
        num_proc=2,
        store=store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02),
        loss=torch.nn.MSELoss(),
        feature_cols=["x"],
        label_cols=["y"],
        batch_size=24,
        epochs=3,
        random_seed=1,
        partitions_per_process=1,
        verbose=0,
    )
    given.update(more)
    if given["num_proc"] is None:
        del given["num_proc"]
    return TorchEstimator(**given)


def gradient_descent(epochs, rate, weights=1.0, rows=slice(None)):
    """The losses of one process that takes a step with all rows in each epoch, and its parameters."""
    x = np.hstack([X, np.ones((len(X), 1))])[rows]
    y, theta, losses = Y[rows], np.zeros(4), []
    for _ in range(epochs):
        error = x @ theta - y
        losses.append(float(np.mean(weights * error**2)))
        theta -= rate * 2 / len(x) * (x.T @ (weights * error))
    return losses, theta


def outputs(model, frame, column="y__output"):
    """What the model adds to the rows, in the order of the rows of X."""
    rows = model.transform(frame).select("x", column).collect()
    found = {tuple(row["x"]): row[column] for row in rows}
    return np.array([found[tuple(x)] for x in X.tolist()])


def losses(model):
    return [epoch["train"]["loss"] for epoch in model.getHistory()]


def test_torch_has_the_loss_of_one_process(torch, frame, store):
    """Two ranks with half of the rows each take the steps of one with all. The learning rate is that of one rank."""
    model = torch_estimator(torch, store).fit(frame)
    expected, theta = gradient_descent(3, 0.02 * 2)
    assert losses(model) == pytest.approx(expected, rel=1e-5)
    assert outputs(model, frame) == pytest.approx(X @ theta[:3] + theta[3], rel=1e-4, abs=1e-5)
    layer = model.getModel()
    assert layer.weight.detach().numpy()[0] == pytest.approx(theta[:3], rel=1e-4)
    # The data is gone, the checkpoint is there.
    assert store.exists(store.get_checkpoint_path(model.getRunId()))
    assert not list(pathlib.Path(store.prefix_path).rglob("*.parquet"))


def test_torch_model_is_saved_and_loaded(torch, frame, store, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel

    from horovod.spark.torch import TorchModel

    model = torch_estimator(torch, store, epochs=1).setNumProc(1).fit(frame)
    expected = outputs(model, frame)
    model.save(str(tmp_path / "model"))
    again = TorchModel.load(str(tmp_path / "model"))
    assert outputs(again, frame) == pytest.approx(expected) and again.getHistory() == model.getHistory()
    assert outputs(again.setOutputCols(["z"]), frame, "z") == pytest.approx(expected)
    pipeline = Pipeline(stages=[torch_estimator(torch, store, epochs=1, num_proc=1)]).fit(frame)
    pipeline.save(str(tmp_path / "pipeline"))
    assert outputs(PipelineModel.load(str(tmp_path / "pipeline")), frame) == pytest.approx(expected, rel=1e-5)


def test_torch_validation(torch, frame, store):
    """The rows that a column marks are not trained on; theirs is the loss after the epoch."""
    model = torch_estimator(torch, store, validation="held", epochs=2, metrics=[torch.nn.functional.l1_loss]).fit(frame)
    held = np.arange(len(X)) % 4 == 0
    expected, _ = gradient_descent(2, 0.02 * 2, rows=~held)
    assert losses(model) == pytest.approx(expected, rel=1e-5)
    for epoch in (0, 1):
        _, theta = gradient_descent(epoch + 1, 0.02 * 2, rows=~held)
        error = X[held] @ theta[:3] + theta[3] - Y[held]
        found = model.getHistory()[epoch]["validation"]
        assert found == pytest.approx({"loss": np.mean(error**2), "l1_loss": np.mean(abs(error))}, rel=1e-4)
    history = torch_estimator(torch, store, validation=0.3, epochs=1).fit(frame).getHistory()
    assert history[0]["validation"]["loss"] > 0


def test_torch_weights_and_vectors(torch, frame, store):
    """Each row's loss has its weight; a vector of Spark is a row of numbers."""
    from pyspark.sql import functions

    model = torch_estimator(torch, store, sample_weight_col="w", epochs=2).fit(frame)
    expected, _ = gradient_descent(2, 0.02 * 2, weights=1.0 + np.arange(len(X)) % 2)
    assert losses(model) == pytest.approx(expected, rel=1e-5)
    vectors = torch_estimator(torch, store, feature_cols=["v"], epochs=1).fit(frame)
    assert outputs(vectors, frame)[:4] == pytest.approx(
        (X * [1, 0, 1])[:4] @ vectors.getModel().weight.detach().numpy()[0] + vectors.getModel().bias.item(), rel=1e-4
    )
    few = frame.filter(functions.col("held")).limit(3)
    assert len(losses(torch_estimator(torch, store, num_proc=4, epochs=1).fit(few))) == 1


def test_torch_two_inputs_and_two_labels(torch, frame, tmp_path):
    """The losses are weighted. The store is one of fsspec."""
    pytest.importorskip("fsspec")

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(0.5))

        def forward(self, x, w):
            return x * self.scale, w.reshape(-1, 1) * self.scale

    model = Two()
    trained = torch_estimator(
        torch,
        Store.create(f"local://{tmp_path}/store"),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        feature_cols=["x", "w"],
        label_cols=["x", "y"],
        loss=[torch.nn.MSELoss(), torch.nn.L1Loss()],
        loss_weights=[2.0, 3.0],
        epochs=1,
    ).fit(frame)
    w = 1.0 + np.arange(len(X)) % 2
    assert losses(trained) == pytest.approx([2 * np.mean((X / 2) ** 2) + 3 * np.mean(abs(w / 2 - Y))], rel=1e-5)
    assert outputs(trained, frame, "x__output") == pytest.approx(X / 2)
    assert outputs(trained, frame) == pytest.approx(w / 2)
    assert (tmp_path / "store" / "runs" / trained.getRunId() / "checkpoint").is_file()


def test_torch_resumes_a_run(torch, frame, store):
    first = torch_estimator(torch, store, run_id="mine", epochs=2).fit(frame)
    second = torch_estimator(torch, store, run_id="mine", epochs=3).fit(frame)
    assert second.getHistory()[:2] == first.getHistory()
    assert losses(second) == pytest.approx(gradient_descent(3, 0.02 * 2)[0], rel=1e-5)


def test_torch_transformation_and_parquet(torch, session, frame, store):
    """The function that transformation_fn makes changes the rows as they are read, and the files may be one's own."""

    def make():
        def halve(rows):
            rows["y"] = rows["y"] / 2
            return rows

        return halve

    expected = [loss / 4 for loss in gradient_descent(1, 0.04)[0]]
    assert losses(torch_estimator(torch, store, transformation_fn=make, epochs=1).fit(frame)) == pytest.approx(expected)
    frame.select("x", "y").coalesce(1).write.mode("overwrite").parquet(store.get_train_data_path())
    model = torch_estimator(torch, store, epochs=1, inmemory_cache_all=True).fit_on_parquet()
    assert losses(model) == pytest.approx(gradient_descent(1, 0.04)[0])


def test_torch_mixes_the_rows(torch, frame, store):
    """Every epoch has each row once, in an order of its own, the same for the same seed."""

    def step(model, optimizer, loss_fn, inputs, labels, weights):
        print("batch", *(round(float(each), 6) for each in labels[0]), flush=True)
        outputs = model(*inputs)
        return outputs, loss_fn(outputs, labels, weights)

    def epochs(**more):
        out = io.StringIO()
        backend = SparkBackend(2, stdout=out)
        options = dict(num_proc=None, backend=backend, batch_size=8, epochs=2, train_minibatch_fn=step)
        torch_estimator(torch, store, **{**options, **more}).fit(frame.coalesce(1))
        found = {}
        for line in out.getvalue().splitlines():
            rank, _, values = line.partition("<stdout>:batch ")
            found.setdefault(rank, []).extend(map(float, values.split()))
        assert sorted(map(len, found.values())) == [48, 48]
        return [[rank[:24] for rank in found.values()], [rank[24:] for rank in found.values()]]

    mixed = epochs()
    for ranks in mixed:
        assert sorted(itertools.chain(*ranks)) == pytest.approx(sorted(Y), abs=1e-5)
    assert mixed[0][0] != mixed[1][0]
    plain = epochs(shuffle=False)
    assert plain[0] == plain[1] and sorted(itertools.chain(*plain[0])) == sorted(itertools.chain(*mixed[0]))


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ({"feature_cols": ["nope"]}, ValueError, "the DataFrame has no column 'nope'; it has 'x', 'y'"),
        ({"feature_cols": ["t"]}, ValueError, "column 't' is of type string: expected numbers"),
        ({"label_cols": ["n"]}, ValueError, "column 'n' has null values"),
        ({"feature_cols": ["ragged"]}, ValueError, "different lengths"),
        ({"validation": 1.5}, ValueError, "validation=1.5: expected a fraction below 1"),
        ({"validation": "nope"}, ValueError, "no column 'nope'"),
        ({"validation": "never"}, ValueError, "validation='never' selects no rows"),
        ({"epochs": 0}, ValueError, "epochs=0: expected a whole number"),
        ({"store": None}, ValueError, "store is missing"),
        ({"store": "/tmp"}, TypeError, r"store is of <class 'str'>: expected a Store; Store.create\(PREFIX\)"),
        ({"model": "model"}, TypeError, "expected a torch.nn.Module"),
        ({"batchsize": 3}, TypeError, "no parameter 'batchsize'; did you mean 'batch_size'"),
        ({"num_proc": 9}, ValueError, "num_proc=9, but Spark runs 4 tasks"),
        ({"reader_pool_type": "process"}, ValueError, "'process' is not supported: row groups are read"),
        ({"callbacks": [1]}, ValueError, "callbacks are those of Keras"),
    ],
)
def test_torch_bad_input(torch, frame, store, more, error, text):
    from pyspark.sql import functions

    frame = frame.select("x", "y").withColumns(
        {
            "t": functions.lit("text"),
            "n": functions.when(functions.col("y") > 0, 1.0),
            "ragged": functions.when(functions.col("y") > 0, functions.array("y")).otherwise(functions.array("y", "y")),
            "never": functions.lit(False),
        }
    )
    with pytest.raises(error, match=text):
        torch_estimator(torch, **{"store": store, **more}).fit(frame)


def test_torch_no_rows_and_a_step_that_fails(torch, frame, store):
    with pytest.raises(ValueError, match="the DataFrame has no rows to train on"):
        torch_estimator(torch, store).fit(frame.filter("y > 1000"))
    with pytest.raises(RuntimeError, match=r"(?s)rank \d failed.*mat1 and mat2 shapes cannot be multiplied"):
        torch_estimator(torch, store, feature_cols=["w"]).fit(frame)
    assert not list(pathlib.Path(store.prefix_path).rglob("*.parquet"))


# --- Keras -----------------------------------------------------------------------------------------


@pytest.fixture
def keras():
    pytest.importorskip("tensorflow")
    return pytest.importorskip("keras", minversion="3")


def keras_estimator(keras, store, **more):
    """One that fits a linear layer, which starts with zeros."""
    from horovod.spark.keras import KerasEstimator

    given = dict(
        num_proc=2,
        store=store,
        model=keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")]),
        optimizer=keras.optimizers.SGD(0.02),
        loss="mse",
        feature_cols=["x"],
        label_cols=["y"],
        batch_size=24,
        epochs=2,
        random_seed=1,
        partitions_per_process=1,
        verbose=0,
    )
    return KerasEstimator(**{**given, **more})


def test_keras_has_the_loss_of_one_process(keras, frame, store, tmp_path):
    """As PyTorch's. Saved and loaded, model and estimator are the same; a longer run continues."""
    from horovod.spark.keras import KerasEstimator, KerasModel

    estimator = keras_estimator(keras, store, run_id="mine", metrics=[keras.metrics.MeanAbsoluteError(name="mae")])
    model = estimator.fit(frame)
    expected, theta = gradient_descent(3, 0.02 * 2)
    assert model.getHistory()["loss"] == pytest.approx(expected[:2], rel=1e-5)
    assert len(model.getHistory()["mae"]) == 2
    _, theta = gradient_descent(2, 0.02 * 2)
    found = outputs(model, frame)
    assert found == pytest.approx(X @ theta[:3] + theta[3], rel=1e-4, abs=1e-5)
    model.save(str(tmp_path / "model"))
    again = KerasModel.load(str(tmp_path / "model"))
    assert outputs(again, frame) == pytest.approx(found) and again.getHistory() == model.getHistory()
    estimator.save(str(tmp_path / "estimator"))
    longer = KerasEstimator.load(str(tmp_path / "estimator")).setEpochs(3).fit(frame)
    assert longer.getHistory()["loss"] == pytest.approx(expected, rel=1e-5)


def test_keras_validation_and_weights(keras, frame, store):
    model = keras_estimator(keras, store, validation="held", sample_weight_col="w", epochs=1).fit(frame)
    held = np.arange(len(X)) % 4 == 0
    weights = 1.0 + np.arange(len(X)) % 2
    _, theta = gradient_descent(1, 0.02 * 2, weights=weights[~held], rows=~held)
    assert model.getModel().get_weights()[0][:, 0] == pytest.approx(theta[:3], rel=1e-4)
    error = X[held] @ theta[:3] + theta[3] - Y[held]
    assert model.getHistory()["val_loss"] == pytest.approx([np.mean(error**2)], rel=1e-4)


def test_keras_classes_and_own_objects(keras, frame, store):
    """A label that is the number of a class, an activation and a callback of one's own, and a schedule of the rate."""
    from pyspark.sql import functions

    def half(x):
        return x / 2

    class Rates(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            print("rate", float(self.model.optimizer.learning_rate), flush=True)

    layer = keras.layers.Dense(2, activation=half, kernel_initializer="zeros", bias_initializer="zeros")
    out = io.StringIO()
    model = keras_estimator(
        keras,
        store,
        num_proc=None,
        backend=SparkBackend(2, stdout=out),
        model=keras.Sequential([keras.Input((3,)), layer]),
        custom_objects={"half": half},
        callbacks=[Rates()],
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.25, 0.125])),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        label_cols=["c"],
    ).fit(frame.withColumn("c", (functions.col("y") > 0).cast("int")))
    rates = sorted(line.partition("rate ")[2] for line in out.getvalue().splitlines() if "rate" in line)
    assert rates == ["0.25", "0.25", "0.5", "0.5"]
    first, second = model.getHistory()["loss"]
    assert first == pytest.approx(np.log(2)) and second < first
    found = outputs(model, frame, "c__output")
    assert found.shape == (48, 2) and np.mean((found[:, 1] > found[:, 0]) == (Y > 0)) > 0.8


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ({"model": "model"}, TypeError, r"expected a keras\.Model"),
        ({"optimizer": 3}, TypeError, r"expected a keras\.optimizers\.Optimizer"),
        ({"feature_cols": ["x", "y"]}, ValueError, "the model has 1 inputs for 2 feature_cols"),
        ({"checkpoint_callback": 1}, ValueError, "the store has the checkpoint of each epoch"),
    ],
)
def test_keras_bad_input(keras, frame, store, more, error, text):
    with pytest.raises(error, match=text):
        keras_estimator(keras, store, **more).fit(frame)
