# SPDX-License-Identifier: Apache-2.0
"""Ranks that are actors of Ray: RayExecutor."""

from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker
