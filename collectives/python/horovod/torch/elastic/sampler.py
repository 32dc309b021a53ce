# SPDX-License-Identifier: Apache-2.0
"""The sampler for data loaders of elastic jobs."""

import torch.utils.data

from hora import sampler


class ElasticSampler(sampler.ElasticSampler, torch.utils.data.Sampler):
    """Divides the samples that were not processed yet among the ranks; see hora.sampler."""
