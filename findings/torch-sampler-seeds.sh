#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0
# behaviour: DistributedSampler adds its seed and the epoch up: with seed 1, epoch 0 has the order that epoch 1 has with
#            seed 0. Runs with neighbouring seeds see the same orders, shifted by an epoch.
# guess:     another seed gives other orders in all epochs
# seen:      2026-11-30, the line that the script compares
# relies:    docs/reference/frameworks.md, which says how to choose seeds; the sampler of hvd.elastic does the same, as
#            Horovod's does
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 || { echo "needs PyPI"; exit 77; }
seen=$("$folder/bin/python" -W ignore - <<'PYTHON'
from torch.utils.data.distributed import DistributedSampler


def orders(seed):
    sampler = DistributedSampler(range(100), num_replicas=2, rank=0, seed=seed)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        yield list(sampler)


first, second, far = (list(orders(seed)) for seed in (0, 1, 1000))
print(first[1:] == second[:3], any(order in first for order in far))
PYTHON
)
echo "$seen"
[ "$seen" = "True False" ] || { echo "seeds no longer behave as described" >&2; exit 1; }
