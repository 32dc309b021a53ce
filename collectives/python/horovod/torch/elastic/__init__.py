# SPDX-License-Identifier: Apache-2.0
"""Training that survives a change of the ranks."""

from hora.elastic import HostUpdateResult, ObjectState, State, run
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
