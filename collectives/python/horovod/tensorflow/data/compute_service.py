# SPDX-License-Identifier: Apache-2.0
"""The names of Horovod's service for preprocessing data on other machines.

Hora has no such service. The module can be imported, so that scripts that use it on request only
still run; using it is a clear error. TensorFlow's own tf.data.experimental.service does the same
work: start its servers, and give each rank's dataset to distribute().
"""

from __future__ import annotations

from hora.exceptions import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _missing(name):
    return UnsupportedError(
        f"horovod.tensorflow.data.compute_service.{name}: there is no data service here; use "
        "tf.data.experimental.service, which needs nothing of ours"
    )


class TfDataServiceConfig:
    """The address of the service, which Hora does not have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _missing("TfDataServiceConfig")

    @staticmethod
    def read(*args: Any, **kwargs: Any) -> Any:
        raise _missing("TfDataServiceConfig.read")


def tf_data_service(*args: Any, **kwargs: Any) -> Any:
    raise _missing("tf_data_service")


def send_to_data_service(*args: Any, **kwargs: Any) -> Any:
    raise _missing("send_to_data_service")


def compute_worker_fn(*args: Any, **kwargs: Any) -> Any:
    raise _missing("compute_worker_fn")
