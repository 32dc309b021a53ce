# SPDX-License-Identifier: Apache-2.0
"""Callbacks for training on several ranks."""

from __future__ import annotations

from tensorflow import keras

from horovod._keras import callbacks as _what

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

(BroadcastGlobalVariablesCallback, MetricAverageCallback, LearningRateScheduleCallback, LearningRateWarmupCallback) = (
    _what.training_callbacks(keras.callbacks.Callback, __name__)
)


class BestModelCheckpoint(_what.BestModelCheckpoint, keras.callbacks.ModelCheckpoint):
    """Keeps the best model in `filepath`, which rank 0 writes. ValueError in fit() where filepath is not set."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str = "epoch",
        filepath: Any = None,
    ) -> None:
        self._start(filepath, monitor, verbose, save_weights_only, mode, save_freq)
