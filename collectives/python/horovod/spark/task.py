# SPDX-License-Identifier: Apache-2.0
"""What a function that horovod.spark.run() calls may ask about its task."""

from __future__ import annotations

import os

from hora.spark_task import GPU_VARIABLE


def get_available_devices() -> list[str]:
    """The GPUs that Spark gave to this rank's task; with HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX=1, the one
    whose number is the local rank, for clusters where Spark does not know of GPUs."""
    if os.environ.get("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "0") not in ("", "0"):
        return [os.environ["HOROVOD_LOCAL_RANK"]]
    return [gpu for gpu in os.environ.get(GPU_VARIABLE, "").split(",") if gpu]
