"""Sparse tensors: the rows of all ranks one after the other, which coalescing adds up."""

import torch

from hora.process_sets import global_process_set

from horovod.torch.mpi_ops import Average, Sum, allgather_async, synchronize


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Starts the sum or average of sparse tensors; answers a function that waits for the result,
    a sparse tensor."""
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be reduced with Average and Sum only")
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
        return torch.sparse_coo_tensor(all_indices.transpose(0, 1), all_values, shape)

    return wait
