#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch), torch.distributed with its backend gloo; 1.13 of Debian 12 behaves alike
# behaviour: all_reduce, reduce, broadcast and scatter take the memory from the tensor's first element on, as if it were
#            contiguous, without an error. Of a slice, wrong elements are added; a transposed tensor arrives permuted.
#            all_gather and all_reduce_coalesced take the elements.
# guess:     each takes the elements, or refuses the tensor, as the backend nccl and gloo's all_to_all_single do
# seen:      2026-11-29, the lines that the script compares
# relies:    TorchFramework.dense() in collectives/python/horovod/torch/tensors.py; torch_ops.check_non_contiguous
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


def show(name, tensor):
    if rank == 1:
        print(name, tensor.tolist())


for name, reduce in ("all_reduce", dist.all_reduce), ("all_reduce_coalesced", lambda x: dist.all_reduce_coalesced([x])):
    even = torch.arange(6.0)[::2]
    reduce(even)
    show(name + " of [0, 2, 4]", even)

transposed = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).t()
received = transposed if rank == 0 else torch.zeros(2, 2)
dist.broadcast(received, 0)
show("broadcast of [[0, 2], [1, 3]]", received)
received = torch.zeros(2, 2)
dist.scatter(received, [transposed.clone(), torch.arange(4.0).reshape(2, 2).t()] if rank == 0 else None, 0)
show("scatter of [[0, 2], [1, 3]]", received)
parts = [torch.zeros(2, 2), torch.zeros(2, 2)]
dist.all_gather(parts, torch.arange(4.0).reshape(2, 2).t())
show("all_gather of [[0, 2], [1, 3]]", parts[0])
dist.destroy_process_group()
PYTHON
timeout 120 "$folder/bin/python" -W ignore "$folder/program.py" 0 "$folder/rendezvous" 2>"$folder/log" &
seen=$(timeout 120 "$folder/bin/python" -W ignore "$folder/program.py" 1 "$folder/rendezvous" 2>>"$folder/log") || tail "$folder/log" >&2
wait
echo "$seen"
[ "$seen" = "all_reduce of [0, 2, 4] [0.0, 4.0, 4.0]
all_reduce_coalesced of [0, 2, 4] [0.0, 4.0, 8.0]
broadcast of [[0, 2], [1, 3]] [[0.0, 1.0], [2.0, 3.0]]
scatter of [[0, 2], [1, 3]] [[0.0, 1.0], [2.0, 3.0]]
all_gather of [[0, 2], [1, 3]] [[0.0, 2.0], [1.0, 3.0]]" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
