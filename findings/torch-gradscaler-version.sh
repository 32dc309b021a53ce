#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch)
# behaviour: GradScaler.unscale_() writes to the gradients and leaves their version counters as they are, on CPUs; clip_grad_norm_()
#            increments them. Code that looks for writes by the version does not see that gradients were unscaled.
# guess:     every operation in place increments the version
# seen:      2026-11-28: "unscale_ 1024.0 -> 1.0, version +0", "clip_grad_norm_ version +1"
# relies:    collectives/python/horovod/torch/optimizer.py (_step_supports_amp_scaling): GradScaler.step() is noticed by what it asks
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0
seen=$("$folder/bin/python" -W ignore -c '
import torch
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
scaler.scale(weight.sum()).backward()
scaled, version = weight.grad.item(), weight.grad._version
scaler.unscale_(optimizer)
print(f"unscale_ {scaled} -> {weight.grad.item()}, version +{weight.grad._version - version}")
version = weight.grad._version
torch.nn.utils.clip_grad_norm_([weight], 0.5)
print(f"clip_grad_norm_ version +{weight.grad._version - version}")')
echo "$seen"
[ "$seen" = "unscale_ 1024.0 -> 1.0, version +0
clip_grad_norm_ version +1" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
