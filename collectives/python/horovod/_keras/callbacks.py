# SPDX-License-Identifier: Apache-2.0
"""The callbacks for training on several ranks, less the Callback class of the Keras that they are
for: horovod.keras.callbacks and horovod.tensorflow.keras.callbacks add that."""

from __future__ import annotations

import os

import numpy as np

from hora import basics, objects
from hora import numpy as arrays
from horovod._keras.backends import backend_name
from horovod._keras.optimizer import check_loss_scaling
from horovod._keras.variables import broadcast_variables, model_variables, optimizer_variables, to_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _leave_compiled_state(model):
    """Keras's JAX trainer holds the variables elsewhere during an epoch; brings them back, and
    makes it read them again."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def _without_xla(model):
    """XLA cannot call out of a graph on TensorFlow, which a reduction must."""
    if getattr(model, "jit_compile", False) and backend_name(model) == "tensorflow":
        model.jit_compile = False
        model.make_train_function(force=True)


class BroadcastGlobalVariables:
    """All ranks start from the root's weights and optimizer state: at the start where both exist
    already on all ranks, else after the first batch, when they do."""

    model: Any  # of Keras's Callback

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._local = {id(variable) for variable in local_variables or ()}
        self.broadcast_done = False

    def register_local_var(self, var: Any) -> None:
        """This variable stays each rank's own."""
        self._local.add(id(var))

    def _variables(self):
        return [
            variable
            for variable in model_variables(self.model) + optimizer_variables(getattr(self.model, "optimizer", None))
            if id(variable) not in self._local
        ]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Broadcasts, if all ranks have the same variables by now; checks the optimizer. Collective."""
        _without_xla(self.model)
        check_loss_scaling(getattr(self.model, "optimizer", None))
        if self.broadcast_done:
            return
        built = self._build_optimizer()
        shapes = [tuple(variable.shape) for variable in self._variables()] if built else []
        everywhere = objects.allgather_object((built, shapes), "broadcast_callback_shapes")
        if built and shapes and all(each == everywhere[0] for each in everywhere):
            self._broadcast()

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Broadcasts after the first batch, unless on_train_begin() did. Collective."""
        if not self.broadcast_done:
            self._broadcast()

    def _build_optimizer(self):
        """Whether the model has its weights, and the optimizer its state."""
        if not getattr(self.model, "built", False):
            return False
        optimizer = getattr(self.model, "optimizer", None)
        if hasattr(optimizer, "built") and hasattr(optimizer, "apply"):  # Keras 3
            if not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            return True
        return False  # Keras 2 makes slots one by one, in the first batch

    def _broadcast(self):
        _leave_compiled_state(self.model)
        broadcast_variables(self._variables(), self.root_rank, "broadcast_callback")
        self.broadcast_done = True


def _is_number(array):
    return array.ndim == 0 and array.dtype.kind in "fiub"


class MetricAverage:
    """Averages the metrics of an epoch over the ranks, for the callbacks that come after it."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replaces every number in logs by its average over the ranks. Collective."""
        if not logs or basics.size() == 1:
            return
        names = sorted(name for name, value in logs.items() if _is_number(to_array(value)))
        handles = [
            arrays.allreduce_async(
                np.asarray(to_array(logs[name]), np.float64), name=f"metric.{name}", op=basics.Average
            )
            for name in names
        ]
        for name, handle in zip(names, handles):
            logs[name] = float(arrays.synchronize(handle))


class LearningRateSchedule:
    """Multiplies the initial learning rate by multiplier(epoch), from start_epoch until before
    end_epoch. A constant multiplier m means m ** (epoch - start_epoch)."""

    params: Any  # of Keras's Callback

    def __init__(
        self,
        initial_lr: Any,
        multiplier: Any,
        start_epoch: int = 0,
        end_epoch: Any = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Any = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is required: the learning rate to multiply")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch: int | None = None
        if callable(multiplier):
            self.staircase = staircase
            self.multiplier = multiplier
        else:
            self.staircase = True
            self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Finds out how many steps an epoch has. ValueError if neither the arguments nor Keras say so."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError("the number of steps per epoch is unknown: pass steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets the learning rate of this epoch (staircase=True)."""
        self.current_epoch = epoch
        if self.staircase:
            self._adjust(epoch)

    def on_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets the learning rate of this batch (staircase=False)."""
        if not self.staircase:
            self._adjust(self.current_epoch + float(batch) / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the learning rate to logs, as "lr"."""
        if logs is not None:
            logs["lr"] = self._learning_rate()

    def _learning_rate(self):
        return float(to_array(self._optimizer().learning_rate))

    def _optimizer(self):
        return self.model.optimizer

    def _adjust(self, epoch):
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        _leave_compiled_state(self.model)
        old = self._learning_rate()
        new = self.initial_lr * self.multiplier(epoch)
        if new == old:
            return
        self._optimizer().learning_rate = new
        if self.momentum_correction and old > 0:
            self._correct_momentum(new / old)

    def _correct_momentum(self, ratio):
        """What momentum holds was made with the old learning rate. It is scaled once, which is
        the same as a momentum coefficient scaled for one batch."""
        optimizer = self._optimizer()
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        if not getattr(optimizer, "momentum", 0) or not isinstance(
            getattr(optimizer, "momentums", None), (list, tuple)
        ):
            return
        for slot in optimizer.momentums:
            if slot is not None:
                slot.assign(to_array(slot) * np.asarray(ratio, to_array(slot).dtype))


class LearningRateWarmup(LearningRateSchedule):
    """Raises the learning rate from initial_lr / size() to initial_lr over the first epochs, as
    large batches need it."""

    def __init__(
        self,
        initial_lr: Any,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Any = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch):
            # The rate at the end of a batch counts, so that the last one ends the warm-up.
            epoch += 1.0 / self.steps_per_epoch
            if not warmup_epochs:
                return 1.0
            return 1.0 / basics.size() * (epoch * (basics.size() - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the learning rate to logs; prints a line at the end of the warm-up if verbose."""
        super().on_epoch_end(epoch, logs)
        if self.end_epoch and epoch == self.end_epoch - 1 and self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._learning_rate():g}.")


class BestModelCheckpoint:
    """Keeps the best model in `filepath`, which rank 0 writes."""

    def _start(self, filepath, monitor, verbose, save_weights_only, mode, save_freq):
        placeholder = "best.weights.h5" if save_weights_only else "best.keras"
        super().__init__(
            os.fspath(filepath) if filepath else placeholder,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = filepath

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """ValueError if filepath is not set."""
        if not self.filepath:
            raise ValueError(
                "BestModelCheckpoint: set filepath to the file to write (callback.filepath = 'best.keras')"
            )
        super().on_train_begin(logs)  # type: ignore[misc]

    def _save_model(self, *args, **kwargs):
        if not basics.is_initialized() or basics.rank() == 0:
            super()._save_model(*args, **kwargs)


# --- elastic ---------------------------------------------------------------------------------------


class CommitState:
    """Commits the state every `batches_per_commit` batches, and at the end of an epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Starts to count batches."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits if batches_per_commit batches have passed. May raise HostsUpdatedInterrupt."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self._commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits. May raise HostsUpdatedInterrupt."""
        self._commit()

    def _commit(self):
        _leave_compiled_state(self.model)
        self.state.commit()


class UpdateBatchState:
    """Keeps state.batch at the batch that comes next; after a reset an epoch is finished, not
    started over."""

    params: Any  # of Keras's Callback

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Forgets the length of an epoch: each fit() has its own."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Shortens the epoch by the batches that were done before a reset."""
        if (self.params or {}).get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets state.batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets state.batch to 0."""
        self.state.batch = 0


class UpdateEpochState:
    """Keeps state.epoch at the epoch that is trained, counted over resets."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before: int | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Counts epochs from state.epoch on."""
        self._before = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes how many epochs were trained before this fit()."""
        if self._before is None:  # epochs that were trained before this fit(), and not counted
            self._before = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets state.epoch to the number of epochs that are done."""
        self.state.epoch = (self._before or 0) + epoch + 1


# --- as classes of one Keras -----------------------------------------------------------------------


def _made(behaviours, base, module):
    """Classes <name>Callback that add `base`, the Callback of one Keras, to each behaviour."""
    return [
        type(f"{behaviour.__name__}Callback", (behaviour, base), {"__doc__": behaviour.__doc__, "__module__": module})
        for behaviour in behaviours
    ]


def training_callbacks(base: Any, module: Any) -> Any:
    """The four callbacks for training, as subclasses of the Callback of one Keras."""
    return _made((BroadcastGlobalVariables, MetricAverage, LearningRateSchedule, LearningRateWarmup), base, module)


def elastic_callbacks(base: Any, module: Any) -> Any:
    """The three callbacks for elastic training, as subclasses of the Callback of one Keras."""
    return _made((CommitState, UpdateBatchState, UpdateEpochState), base, module)
