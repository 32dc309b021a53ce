#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   DeepSpeed 0.19.8 on PyTorch 2.15.0 (CPU)
# behaviour: the launcher sorts GPUs. Under CUDA_VISIBLE_DEVICES=3,1 its ranks have CUDA_VISIBLE_DEVICES=1,3, so that
#            local rank 0 gets GPU 1; `--include HOST:3,1` is the same.
# guess:     the order of the list is that of the local ranks, as CUDA numbers its devices by it, and as under torchrun
# seen:      2026-11-29: "deepspeed: 1,3 1,3", "torchrun: 3,1 3,1"
# relies:    docs/reference/hosts.md, "Some of the hosts": --include keeps the order of the list; launcher/plan/selection.cpp
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 numpy deepspeed==0.19.8 || { echo "needs PyPI"; exit 77; }
echo 'import os; print("GPUs", os.environ["CUDA_VISIBLE_DEVICES"])' >"$folder/program.py"
cd "$folder"
# DeepSpeed asks its accelerator, here the CPU, for the number of devices: LOCAL_SIZE.
export CUDA_VISIBLE_DEVICES=3,1 LOCAL_SIZE=4 DS_ACCELERATOR=cpu PATH="$folder/bin:$PATH"
gpus() { grep '^GPUs' | cut -d ' ' -f 2 | paste -sd ' '; }
seen="deepspeed: $(timeout 180 deepspeed --no_local_rank program.py 2>"$folder/log" | gpus)
torchrun: $(timeout 180 torchrun --standalone --nproc-per-node 2 program.py 2>>"$folder/log" | gpus)"
echo "$seen"
[ "$seen" = "deepspeed: 1,3 1,3
torchrun: 3,1 3,1" ] || { tail "$folder/log" >&2; echo "DeepSpeed no longer behaves as described" >&2; exit 1; }
