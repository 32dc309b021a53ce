"""Callbacks for training on several ranks."""

import keras

from horovod._keras import callbacks as _what


class BroadcastGlobalVariablesCallback(_what.BroadcastGlobalVariables, keras.callbacks.Callback):
    __doc__ = _what.BroadcastGlobalVariables.__doc__

    def __init__(self, root_rank, device="", local_variables=None):
        super().__init__()
        self._setup(root_rank, device, local_variables)


class MetricAverageCallback(_what.MetricAverage, keras.callbacks.Callback):
    __doc__ = _what.MetricAverage.__doc__

    def __init__(self, device=""):
        super().__init__()
        self._setup(device)


class LearningRateScheduleCallback(_what.LearningRateSchedule, keras.callbacks.Callback):
    __doc__ = _what.LearningRateSchedule.__doc__

    def __init__(self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True,
                 momentum_correction=True, steps_per_epoch=None):
        super().__init__()
        self._setup(initial_lr, multiplier, start_epoch, end_epoch, staircase,
                    momentum_correction, steps_per_epoch)


class LearningRateWarmupCallback(_what.LearningRateWarmup, keras.callbacks.Callback):
    __doc__ = _what.LearningRateWarmup.__doc__

    def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True,
                 steps_per_epoch=None, verbose=0):
        super().__init__()
        self._setup(initial_lr, warmup_epochs, momentum_correction, steps_per_epoch, verbose)


class BestModelCheckpoint(_what.BestModelCheckpoint, keras.callbacks.ModelCheckpoint):
    __doc__ = _what.BestModelCheckpoint.__doc__

    def __init__(self, monitor="val_loss", verbose=0, mode="auto", save_freq="epoch",
                 filepath=None, save_weights_only=False):
        super().__init__(
            self._path_or_placeholder(filepath, save_weights_only), monitor=monitor,
            verbose=verbose, save_best_only=True, save_weights_only=save_weights_only, mode=mode,
            save_freq=save_freq)
        self.filepath = filepath

    def on_train_begin(self, logs=None):
        self._check_path()
        super().on_train_begin(logs)

    def _save_model(self, *args, **kwargs):
        if self._is_writer():
            super()._save_model(*args, **kwargs)
