# SPDX-License-Identifier: Apache-2.0
"""Ranks that are actors of Ray: RayExecutor; ElasticRayExecutor for as many as there is room for."""

from horovod.ray.elastic import ElasticRayExecutor
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker
