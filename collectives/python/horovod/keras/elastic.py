"""Training that survives a change of the ranks."""

import keras

from hora.elastic import run  # noqa: F401

from horovod._keras import callbacks as _what
from horovod._keras.state import KerasState  # noqa: F401


class CommitStateCallback(_what.CommitState, keras.callbacks.Callback):
    __doc__ = _what.CommitState.__doc__

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        self._setup(state, batches_per_commit)


class UpdateBatchStateCallback(_what.UpdateBatchState, keras.callbacks.Callback):
    __doc__ = _what.UpdateBatchState.__doc__

    def __init__(self, state):
        super().__init__()
        self._setup(state)


class UpdateEpochStateCallback(_what.UpdateEpochState, keras.callbacks.Callback):
    __doc__ = _what.UpdateEpochState.__doc__

    def __init__(self, state):
        super().__init__()
        self._setup(state)
