# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch DistributedDataParallel, without Horovod or Hora in the script. The launcher sets
the variables that init_process_group() reads.

    horarun -np 2 python3 docs/examples/torch_ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    generator = torch.Generator().manual_seed(rank)
    for _ in range(200):
        inputs = torch.randn(16, 4, generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs @ truth).backward()
        optimizer.step()
    error = (model.module.weight.detach().t() - truth).abs().max()
    dist.all_reduce(error, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{size} rank(s): the largest error of a weight is {error.item():.6f}", flush=True)
    del model  # it holds the process group, whose threads must end before Python does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
