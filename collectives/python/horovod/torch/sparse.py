# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors: the rows of all ranks one after the other, which coalescing adds up."""

from __future__ import annotations

import torch

from hora.exceptions import TensorMismatchError
from hora.process_sets import global_process_set
from horovod.torch.mpi_ops import Average, Sum, allgather_async, synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hora.process_sets import ProcessSet

# These tensors are valid, so PyTorch need not check them; newer releases warn unless check_invariants is given.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def empty_sparse(like: torch.Tensor, sparse_dims: Any) -> Any:
    """Zeros as a sparse tensor of the shape of `like`, sparse in its first dimensions."""
    indices = torch.zeros((sparse_dims, 0), dtype=torch.int64, device=like.device)
    values = torch.zeros((0, *like.shape[sparse_dims:]), dtype=like.dtype, device=like.device)
    return torch.sparse_coo_tensor(indices, values, like.shape, device=like.device, **_UNCHECKED)


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts to add up or average sparse tensors; returns a function that waits for the result, a sparse tensor.

    Shape, dtype and the number of sparse dimensions are the same on all ranks; the ranks may have different rows. op
    is Average or Sum. Raises ValueError for another op and for a dense tensor; the returned function raises
    TensorMismatchError if the shapes differ, and otherwise what synchronize() raises.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be reduced with Average and Sum only")
    if not getattr(tensor, "is_sparse", False):
        raise ValueError(f"sparse_allreduce_async({name}): expected a sparse tensor; allreduce_async is for dense ones")
    tensor = tensor.detach().coalesce()
    shape = tensor.shape
    own_shape = list(shape[: tensor.sparse_dim()])
    # Each rank's first row holds its shape, by numbers that no index can be: indices into a larger tensor
    # would not fit in here. That the dense dimensions differ shows when the values are gathered.
    rows = [[-1 - size for size in own_shape]] if own_shape else []
    first = torch.tensor(rows, dtype=torch.int64, device=tensor.device).reshape(len(rows), len(own_shape))
    indices = torch.cat([first, tensor.indices().transpose(0, 1)])
    values = tensor.values()
    indices_handle = allgather_async(indices, f"{name}.indices", process_set)
    values_handle = allgather_async(values, f"{name}.values", process_set)

    def wait():
        all_indices = synchronize(indices_handle)
        all_values = synchronize(values_handle)
        is_shape = (all_indices < 0).any(dim=1)
        shapes = (-1 - all_indices[is_shape]).tolist()
        other = next((sizes for sizes in shapes if sizes != own_shape), None)
        if other is not None:
            raise TensorMismatchError(
                f"sparse_allreduce '{name}': the shape differs: this rank has {own_shape}, another has {other} "
                f"in the dimensions that are sparse"
            )
        all_indices = all_indices[~is_shape]
        divided = op == Average and (all_values.is_floating_point() or all_values.is_complex())
        if divided:
            all_values = all_values / process_set.size()
        result = torch.sparse_coo_tensor(
            all_indices.transpose(0, 1), all_values, shape, device=all_values.device, **_UNCHECKED
        )
        if op == Average and not divided:  # the sum is divided, and truncated, as that of a dense tensor
            result = result.coalesce()
            result.values().div_(process_set.size(), rounding_mode="trunc")
        return result

    return wait
