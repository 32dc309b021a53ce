# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator: trains a model of PyTorch on a DataFrame of Spark."""

from __future__ import annotations

import copy
import functools
import io

import numpy as np
import torch

from horovod.spark.common.estimator import HorovodEstimator, HorovodModel, reader
from horovod.spark.common.params import parameters
from horovod.spark.task import get_available_devices


@parameters(
    input_shapes=(None, "the shape of each input of the model, with -1 for the rows"),
    label_shapes=(None, "the same for each label"),
    loss_constructors=(None, "functions without parameters that return the losses, in place of loss"),
    train_minibatch_fn=(None, "takes a step, in place of the usual one"),
    callbacks=(None, "refused: the loop is not that of a framework with callbacks"),
)
class TorchEstimator(HorovodEstimator):
    """Trains a torch.nn.Module on ranks in tasks of Spark; fit(df) returns a TorchModel.

    docs/howto/spark.md describes the parameters, which the constructor takes by name: those of every estimator, and
    input_shapes, label_shapes, loss_constructors and train_minibatch_fn. The model gets a tensor for each of
    feature_cols, and returns one for each of label_cols. A column of numbers is a tensor of shape (rows,), one of
    arrays or vectors (rows, n), unless input_shapes and label_shapes say otherwise. Floats have the type of the model's
    parameters, integers and booleans their own. A label with as many values as the output gets the output's shape.

    fit() blocks until all ranks have ended.

    Raises:
        ValueError: a parameter is missing or wrong, a column is missing, has null values or arrays of several lengths,
            or there are no rows to train on or to validate with
        TypeError: an unknown parameter; model or optimizer are not those of PyTorch
        RuntimeError: a rank failed (with its traceback)
    """

    def _check(self):
        super()._check()
        values = self.values()
        if values["callbacks"]:
            raise ValueError("callbacks are those of Keras: here, train_minibatch_fn takes each step")
        if not isinstance(values["model"], torch.nn.Module):
            raise TypeError(f"model is of {type(values['model'])}: expected a torch.nn.Module")
        if not isinstance(values["optimizer"], torch.optim.Optimizer):
            raise TypeError(f"optimizer is of {type(values['optimizer'])}: expected a torch.optim.Optimizer")
        own = {id(parameter) for parameter in values["model"].parameters()}
        if not own.issuperset(id(each) for group in values["optimizer"].param_groups for each in group["params"]):
            raise ValueError("optimizer has parameters that are not those of model")
        for name, columns in (("input_shapes", "feature_cols"), ("label_shapes", "label_cols")):
            if values[name] is not None and len(values[name]) != len(values[columns]):
                raise ValueError(f"{name} has {len(values[name])} shapes for {len(values[columns])} {columns}")
        labels = len(values["label_cols"])
        for name in ("loss", "loss_constructors", "loss_weights"):
            if isinstance(values[name], (list, tuple)) and len(values[name]) != labels:
                raise ValueError(f"{name} has {len(values[name])} entries for {labels} label_cols")

    def _prepare(self, job):
        return _train

    def _made(self, job, outcome, checkpoint):
        model = copy.deepcopy(job.model).cpu()
        state = _loaded(checkpoint)
        model.load_state_dict(state["model"])
        return TorchModel(
            model=model,
            feature_columns=job.feature_cols,
            label_columns=job.label_cols,
            input_shapes=job.input_shapes,
            batch_size=job.val_batch_size or job.batch_size,
            history=state["history"],
            run_id=job.run_id,
            output_is_scalar=outcome,
        )


@parameters(input_shapes=(None, "the shape of each input of the model, with -1 for the rows"))
class TorchModel(HorovodModel):
    """A trained torch.nn.Module. transform(df) adds a column for each label: a double where the model gives one number
    for a row, and an array of doubles otherwise. getModel() is the module, getHistory() a list with a dict for each
    epoch: {"epoch": 0, "train": {"loss": 0.5, ...}, "validation": {...}}."""

    def _predictor(self):
        return _make_predictor, (self.getOrDefault("model"), self.getOrDefault("input_shapes"))


def _make_predictor(model, shapes):
    model.eval()

    def outputs_of(arrays):
        with torch.no_grad():
            outputs = model(*_tensors(arrays, shapes, "cpu"))
        return [output.numpy() for output in _several(outputs)]

    return outputs_of, _float_type(model)


def _float_type(model):
    kind = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    return np.float64 if kind == torch.float64 else np.float32


def _tensors(arrays, shapes, device):
    tensors = [torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays]
    return [each.reshape(tuple(shape)) for each, shape in zip(tensors, shapes)] if shapes else tensors


def _several(outputs):
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _loaded(checkpoint):
    return torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=True)


# --- in a rank -------------------------------------------------------------------------------------


def _train(job):
    """Trains, and writes a checkpoint after each epoch; returns which outputs are one number for each row."""
    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(job.random_seed + hvd.rank())
    device = torch.device("cpu")
    if job.use_gpu and torch.cuda.is_available():
        device = torch.device("cuda", int((get_available_devices() or [hvd.local_rank()])[0]))
        torch.cuda.set_device(device)
    training = _Training(job, device, hvd)
    history = training.resume()
    training.distribute()
    for epoch in range(len(history), job.epochs):
        history.append({"epoch": epoch, "train": training.run(is_training=True)})
        if training.has_validation:
            history[-1]["validation"] = training.run(is_training=False)
        if hvd.rank() == 0:
            job.store.write(job.checkpoint, training.checkpoint(history))
            if job.verbose:
                print(_summary(history[-1], job.epochs), flush=True)
    hvd.shutdown()
    return training.output_is_scalar()


def _summary(entry, epochs):
    values = [(name, value) for name, value in entry["train"].items()]
    values += [(f"val_{name}", value) for name, value in entry.get("validation", {}).items()]
    return f"epoch {entry['epoch'] + 1}/{epochs}: " + ", ".join(f"{name} {value:.6g}" for name, value in values)


class _Training:
    def __init__(self, job, device, hvd):
        self._job, self._device, self._hvd = job, device, hvd
        self._model, self._optimizer = job.model.to(device), job.optimizer
        self._losses = [make() for make in job.loss_constructors] if job.loss_constructors else _several(job.loss)
        kind = _float_type(job.model)
        self._train = reader(job, hvd.rank(), hvd.size(), True, kind)
        self._validation = reader(job, hvd.rank(), hvd.size(), False, kind)
        self.has_validation = self._validation is not None
        self._step = job.train_minibatch_fn or _step
        self._metrics = list(job.metrics or [])

    def resume(self):
        """Continues from the last checkpoint of the run, if there is one; returns the history so far."""
        job, size = self._job, 1
        history = []
        if job.store.exists(job.checkpoint):
            state = _loaded(job.store.read(job.checkpoint))
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            size, history = state["size"], state["history"]
        elif self._optimizer.state:
            self._optimizer.load_state_dict(self._optimizer.state_dict())  # to the device
        for group in self._optimizer.param_groups:
            group["lr"] *= self._hvd.size() / size
        return history

    def distribute(self):
        compression = self._job.gradient_compression or self._hvd.Compression.none
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        named = [(names[id(each)], each) for group in self._optimizer.param_groups for each in group["params"]]
        self._optimizer = self._hvd.DistributedOptimizer(self._optimizer, named, compression=compression)

    def checkpoint(self, history):
        file = io.BytesIO()
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
        torch.save({**state, "size": self._hvd.size(), "history": history}, file)
        return file.getvalue()

    def run(self, is_training):
        """An epoch: the averages of the loss and the metrics over the rows of all ranks."""
        batches, steps = self._train if is_training else self._validation
        self._model.train(is_training)
        sums = {"loss": 0.0}
        rows = 0
        for batch in batches.batches(steps):
            inputs, labels, weights = self._split(batch)
            if is_training:
                outputs, loss = self._step(self._model, self._optimizer, self._loss, inputs, labels, weights)
            else:
                with torch.no_grad():
                    outputs = self._model(*inputs)
                    loss = self._loss(outputs, labels, weights)
            count = len(labels[0])
            rows += count
            sums["loss"] += float(loss.detach()) * count
            with torch.no_grad():
                for name, value in self._measured(outputs, labels):
                    sums[name] = sums.get(name, 0.0) + float(value) * count
        total = self._hvd.allreduce(torch.tensor([*sums.values(), rows], dtype=torch.float64), op=self._hvd.Sum)
        return {name: float(value / total[-1]) for name, value in zip(sums, total)}

    def _split(self, batch):
        job = self._job
        inputs = _tensors([batch[name] for name in job.feature_cols], job.input_shapes, self._device)
        labels = _tensors([batch[name] for name in job.label_cols], job.label_shapes, self._device)
        weight = job.sample_weight_col
        return inputs, labels, _tensors([batch[weight]], None, self._device)[0] if weight else None

    def _pairs(self, outputs, labels):
        """An output and a label for each of label_cols."""
        outputs = _several(outputs)
        if len(outputs) != len(labels):
            raise ValueError(f"the model returned {len(outputs)} outputs for {len(labels)} label_cols")
        return [(output, _alike(label, output)) for output, label in zip(outputs, labels)]

    def _loss(self, outputs, labels, weights):
        pairs = self._pairs(outputs, labels)
        losses = self._losses * len(pairs) if len(self._losses) == 1 else self._losses
        factors = self._job.loss_weights or [1.0] * len(pairs)
        return sum(
            factor * (loss(*pair) if weights is None else _weighted(loss, pair, weights))
            for factor, loss, pair in zip(factors, losses, pairs)
        )

    def _measured(self, outputs, labels):
        pairs = self._pairs(outputs, labels)
        for metric in self._metrics:
            name = getattr(metric, "__name__", type(metric).__name__)
            for column, pair in zip(self._job.label_cols, pairs):
                yield name if len(pairs) == 1 else f"{column}_{name}", metric(*pair)

    def output_is_scalar(self):
        batch = next(self._train[0].batches(1))
        self._model.eval()
        with torch.no_grad():
            outputs = _several(self._model(*self._split(batch)[0]))
        return [output.numel() == len(output) for output in outputs]


def _step(model, optimizer, loss_fn, inputs, labels, sample_weights):
    optimizer.zero_grad()
    outputs = model(*inputs)
    loss = loss_fn(outputs, labels, sample_weights)
    loss.backward()
    optimizer.step()
    return outputs, loss


def _alike(label, output):
    """A label with as many values as the output, in its shape: PyTorch would broadcast (rows,) against (rows, 1)."""
    if label.numel() != output.numel():
        return label
    label = label.reshape(output.shape)
    return label if label.is_floating_point() else label.to(output.dtype)


def _weighted(loss, pair, weights):
    """The mean of the losses of the rows, each times its weight."""
    if isinstance(loss, torch.nn.Module):
        loss = copy.copy(loss)
        loss.reduction = "none"
    else:
        loss = functools.partial(loss, reduction="none")
    values = loss(*pair)
    if values.dim() == 0:
        raise ValueError("sample_weight_col: the loss has to give a value for each row with reduction='none'")
    return (values.reshape(len(values), -1).mean(1) * weights).mean()
