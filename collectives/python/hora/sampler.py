# SPDX-License-Identifier: Apache-2.0
"""Which samples of a data set this rank takes, when ranks may come and go in mid-epoch."""

from __future__ import annotations

import random

from hora import basics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class ElasticSampler:
    """Divides the samples of this epoch that were not processed yet among the ranks.

    The order of an epoch depends on seed and epoch alone, so that every rank finds the same one.
    The processed samples are a prefix of that order: record_batch() extends it, and reset() divides the rest
    among the current ranks. The last round is filled with samples from the start of the rest, so that all
    ranks get the same number.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.rank = 0
        self.num_replicas = 1
        self.remaining_indices: list[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch. Call it at its end too, so that a restart begins with the next."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Counts one batch as processed, by every rank. batch_idx is ignored: after a reset a script may
        continue to count, or start again."""
        self.processed_num += batch_size * self.num_replicas

    def record_indices(self, indices: Sequence[int]) -> None:
        """Counts these samples as processed, and as many on every other rank."""
        self.processed_num += len(indices) * self.num_replicas

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of this rank's batch number batch_idx since the last reset."""
        start = batch_idx * batch_size
        return self.indices[start : min(start + batch_size, len(self.indices))]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from a state_dict(), and divides what is left among the current ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the number of samples that all ranks together have processed in it."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def reset(self) -> None:
        """Shares the samples that are left among the ranks of the job as it is now."""
        initialized = basics.is_initialized()
        self.num_replicas = basics.size() if initialized else 1
        self.rank = basics.rank() if initialized else 0
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(int(self.seed) + int(self.epoch)).shuffle(order)  # random takes Python's integers only
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        filled = list(self.remaining_indices)
        while filled and len(filled) < self.total_size:
            filled += self.remaining_indices[: self.total_size - len(filled)]
        self.indices = filled[self.rank : self.total_size : self.num_replicas]

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return self.num_samples
