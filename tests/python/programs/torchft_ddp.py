# SPDX-License-Identifier: Apache-2.0
"""Fits a line with torchft: each rank is a replica group of its own, and rank 0 runs the lighthouse."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
shared = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0)
if rank == 0:
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=size)
    shared.set("lighthouse", lighthouse.address())
own = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
model = torch.nn.Linear(4, 1, bias=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
    min_replica_size=size,
    load_state_dict=model.load_state_dict,
    state_dict=model.state_dict,
    replica_id=f"rank{rank}_",
    store_addr="localhost",
    store_port=own.port,
    rank=0,
    world_size=1,
    lighthouse_addr=shared.get("lighthouse").decode(),
)
optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.1))
replicated = DistributedDataParallel(manager, model)

torch.manual_seed(rank)
truth = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
inputs = torch.randn(64, 4)
while manager.current_step() < 100:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(replicated(inputs), inputs @ truth.T)
    loss.backward()
    optimizer.step()
found = ",".join(f"{value:.4f}" for value in model.weight.detach().flatten().tolist())
print(f"rank {rank} of {manager.num_participants()} found {found} loss {loss.item():.9f}", flush=True)
shared.set(f"done{rank}", "")
shared.wait([f"done{other}" for other in range(size)])
manager.shutdown()
