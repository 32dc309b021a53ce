# SPDX-License-Identifier: Apache-2.0
"""Training that survives a change of the ranks."""

import keras

from hora.elastic import run  # noqa: F401
from horovod._keras import callbacks as _what
from horovod._keras.state import KerasState  # noqa: F401

(CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback) = _what.elastic_callbacks(
    keras.callbacks.Callback, __name__
)
