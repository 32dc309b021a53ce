#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch), torch.distributed with its backend gloo
# behaviour: all_reduce of booleans with SUM, the default, adds their bytes: True on two ranks is a byte of 2, which a tensor
#            of booleans never has otherwise. After eight such calls, or one on 256 ranks, it is 0, which is False.
# guess:     SUM is a logical or, as in NumPy and as of MAX
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/runtime.md: the sum of booleans is their or; torch_ops.check_bool
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 || { echo "needs PyPI"; exit 77; }
cat >"$folder/program.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
by_sum, by_max = torch.tensor([True]), torch.tensor([True])
for calls in range(1, 9):
    dist.all_reduce(by_sum)
    dist.all_reduce(by_max, op=dist.ReduceOp.MAX)
    if rank == 0 and calls in (1, 7, 8):
        byte = by_sum.view(torch.uint8).item()
        print(f"after {calls}: SUM {by_sum.item()}, a byte of {byte}; MAX {by_max.item()}")
dist.destroy_process_group()
PYTHON
timeout 120 "$folder/bin/python" -W ignore "$folder/program.py" 1 "$folder/rendezvous" 2>"$folder/log" &
seen=$(timeout 120 "$folder/bin/python" -W ignore "$folder/program.py" 0 "$folder/rendezvous" 2>>"$folder/log") || tail "$folder/log" >&2
wait
echo "$seen"
[ "$seen" = "after 1: SUM True, a byte of 2; MAX True
after 7: SUM True, a byte of 128; MAX True
after 8: SUM False, a byte of 0; MAX True" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
