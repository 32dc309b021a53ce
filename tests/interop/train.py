# SPDX-License-Identifier: Apache-2.0
"""A Horovod training program as Horovod's users write them. Prints one line a rank."""

import sys

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

truth = torch.arange(1.0, 9.0).reshape(8, 1)
losses = []
for step in range(60):
    inputs = torch.randn(32, 8)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(hvd.allreduce(loss.detach(), name="loss").item())

total = sum(p.double().sum() for p in model.parameters()).reshape(1)
everyone = hvd.allgather(total, name="total")
assert torch.equal(everyone, everyone[0].expand(hvd.size())), f"ranks differ: {everyone}"
assert losses[-1] < losses[0] / 3, f"did not learn: {losses[0]} -> {losses[-1]}"
print(f"rank {hvd.rank()} of {hvd.size()} (local {hvd.local_rank()} of {hvd.local_size()}) learned with {hvd.__file__}")
sys.stdout.flush()
hvd.shutdown()
