#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch), torch.distributed with its backend gloo; NumPy 2.4.6, which all_gather_object needs
# behaviour: dist.reduce to rank 0 leaves parts of the sum in the tensors of the other ranks, other parts in different
#            elements of the same tensor.
# guess:     they keep what they had, as with the backend nccl: "Only the process with rank dst is going to receive the final
#            result"
# seen:      2026-11-29, the lines that the script compares: ranks have 1, 10 and 100
# relies:    docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 numpy==2.4.6 || { echo "needs PyPI"; exit 77; }
cat >"$folder/program.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=3)
tensor = torch.full((3,), 10.0**rank)
dist.reduce(tensor, 0)
tensors = [None] * 3
dist.all_gather_object(tensors, tensor.tolist())
if rank == 0:
    print(*tensors, sep="\n")
dist.destroy_process_group()
PYTHON
run() { timeout 120 "$folder/bin/python" -W ignore "$folder/program.py" "$1" "$folder/rendezvous" 2>>"$folder/log"; }
run 1 &
run 2 &
seen=$(run 0) || tail "$folder/log" >&2
wait
echo "$seen"
[ "$seen" = "[111.0, 111.0, 111.0]
[110.0, 110.0, 111.0]
[100.0, 100.0, 101.0]" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
