# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors: the rows of all ranks one after the other, which coalescing adds up."""

from __future__ import annotations

import torch

from hora.process_sets import global_process_set
from horovod.torch.mpi_ops import Average, Sum, allgather_async, synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hora.process_sets import ProcessSet

# What is put together here is right as it stands. Newer releases warn when they are not told
# whether to look.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def empty_sparse(like: torch.Tensor, sparse_dims: Any) -> Any:
    """Zeros as a sparse tensor of the shape of `like`, sparse in its first dimensions."""
    indices = torch.zeros((sparse_dims, 0), dtype=torch.int64, device=like.device)
    values = torch.zeros((0, *like.shape[sparse_dims:]), dtype=like.dtype, device=like.device)
    return torch.sparse_coo_tensor(indices, values, like.shape, **_UNCHECKED)


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum or average of sparse tensors; returns a function that waits for the result,
    a sparse tensor."""
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be reduced with Average and Sum only")
    if not getattr(tensor, "is_sparse", False):
        raise ValueError(f"sparse_allreduce_async({name}): expected a sparse tensor; allreduce_async is for dense ones")
    tensor = tensor.detach().coalesce()
    indices = tensor.indices().transpose(0, 1).contiguous()
    values = tensor.values()
    indices_handle = allgather_async(indices, f"{name}.indices", process_set)
    values_handle = allgather_async(values, f"{name}.values", process_set)
    shape = tensor.shape

    def wait():
        all_indices = synchronize(indices_handle)
        all_values = synchronize(values_handle)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.transpose(0, 1), all_values, shape, **_UNCHECKED)

    return wait
