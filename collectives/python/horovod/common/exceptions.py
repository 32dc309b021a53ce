# SPDX-License-Identifier: Apache-2.0
"""The errors that scripts catch; see hora.exceptions."""

from hora.exceptions import (  # noqa: F401
    CollectiveTimeoutError,
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    NotInitializedError,
    TensorMismatchError,
    UnsupportedError,
    UnsupportedReductionError,
    get_version_mismatch_message,
)
