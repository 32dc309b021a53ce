# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch DistributedDataParallel program, as found in any tutorial; it knows no launcher."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", init_method="env://")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_num_threads(1)

truth = torch.arange(1.0, 9.0).reshape(8, 1)
model = DistributedDataParallel(torch.nn.Linear(8, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
first = last = None
for step in range(60):
    inputs = torch.randn(32, 8, generator=generator)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    last = loss.item()
    first = last if first is None else first

weights = [torch.zeros(1, 8) for _ in range(size)]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(weights[0], other) for other in weights), "ranks differ"
assert last < first / 100, f"did not learn: {first} -> {last}"
print(f"rank {rank} of {size} learned: loss {first:.3f} -> {last:.5f}", flush=True)
del (
    model
)  # else it keeps the process group, whose threads abort() when they drop a tensor while Python ends (pytorch#179291)
dist.destroy_process_group()
