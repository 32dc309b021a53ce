# SPDX-License-Identifier: Apache-2.0
"""Fits a line with DeepSpeed, whose optimizer is divided among the ranks (ZeRO stage 1)."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch

deepspeed.init_distributed(dist_backend="gloo")
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(rank)
truth = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
inputs = torch.randn(64, 4)
targets = inputs @ truth.T

engine, _, _, _ = deepspeed.initialize(
    model=torch.nn.Linear(4, 1, bias=False),
    config={
        "train_micro_batch_size_per_gpu": 64,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    },
)
for _ in range(300):
    loss = torch.nn.functional.mse_loss(engine(inputs), targets)
    engine.backward(loss)
    engine.step()
found = ",".join(f"{value:.4f}" for value in engine.module.weight.detach().flatten().tolist())
print(f"rank {rank} of {size} found {found} loss {loss.item():.9f}", flush=True)
