# SPDX-License-Identifier: Apache-2.0
"""Callbacks for training on several ranks."""

import keras

from horovod._keras import callbacks as _what

(BroadcastGlobalVariablesCallback, MetricAverageCallback, LearningRateScheduleCallback, LearningRateWarmupCallback) = (
    _what.training_callbacks(keras.callbacks.Callback, __name__)
)


class BestModelCheckpoint(_what.BestModelCheckpoint, keras.callbacks.ModelCheckpoint):
    __doc__ = _what.BestModelCheckpoint.__doc__

    def __init__(
        self, monitor="val_loss", verbose=0, mode="auto", save_freq="epoch", filepath=None, save_weights_only=False
    ):
        self._start(filepath, monitor, verbose, save_weights_only, mode, save_freq)
