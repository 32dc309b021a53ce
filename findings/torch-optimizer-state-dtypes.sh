#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 and 1.13
# behaviour: load_state_dict() of an optimizer casts all that a parameter has in its state to the parameter's dtype, but for
#            "step": of bfloat16 parameters float32 momenta or master weights lose their digits, and counters become bfloat16.
#            torch.optim.ASGD itself keeps float32 numbers there, so training that resumes goes on with another rate.
# guess:     a state is loaded as it was saved
# seen:      2026-11-29, the lines that the script compares
# relies:    load_optimizer_state() in collectives/python/horovod/torch/functions.py, which puts the dtypes back;
#            torch_optimizer.check_state_keeps_its_dtypes
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 || { echo "needs PyPI"; exit 77; }
seen=$("$folder/bin/python" - <<'PYTHON'
import torch


def asgd():
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    return parameter, torch.optim.ASGD([parameter], lr=0.01)


def show(what, state):
    print(what, *(f"{name} {state[name].dtype} {state[name].item():.6f}" for name in ("eta", "mu", "step")))


parameter, optimizer = asgd()
for _ in range(3):
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
other, resumed = asgd()
resumed.load_state_dict(optimizer.state_dict())
show("saved: ", optimizer.state[parameter])
show("loaded:", resumed.state[other])
PYTHON
)
echo "$seen"
[ "$seen" = "saved:  eta torch.float32 0.010000 mu torch.float32 1.000000 step torch.float32 3.000000
loaded: eta torch.bfloat16 0.010010 mu torch.bfloat16 1.000000 step torch.float32 3.000000" ] ||
  { echo "PyTorch no longer behaves as described" >&2; exit 1; }
