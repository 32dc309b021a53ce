# SPDX-License-Identifier: Apache-2.0
"""The Keras callback that notebooks import."""

from __future__ import annotations

from hora.runner import log_to_driver
from horovod.tensorflow.keras import callbacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LogCallback(callbacks.keras.callbacks.Callback):
    """Writes the metrics of each epoch to the output of the job, and of each batch if asked to."""

    def __init__(self, per_batch_log: bool = False) -> None:
        super().__init__()
        self.per_batch_log = per_batch_log
        self._epoch = 0

    @staticmethod
    def _text(logs):
        return ", ".join(f"{name}: {float(value):.4g}" for name, value in sorted((logs or {}).items()))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sends a line to the driver."""
        self._epoch = epoch
        log_to_driver(f"epoch {epoch} begins")

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends the metrics of the batch to the driver, if per_batch_log is set."""
        if self.per_batch_log:
            log_to_driver(f"epoch {self._epoch}, batch {batch}: {self._text(logs)}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Sends the metrics of the epoch to the driver."""
        log_to_driver(f"epoch {epoch} ends: {self._text(logs)}")
