# SPDX-License-Identifier: Apache-2.0
"""The sampler for data loaders of elastic jobs."""

import torch.utils.data

from hora import sampler


class ElasticSampler(sampler.ElasticSampler, torch.utils.data.Sampler):
    """Shares out the samples that were not processed yet; see hora.sampler."""
