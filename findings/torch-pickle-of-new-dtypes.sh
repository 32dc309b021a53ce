#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch)
# behaviour: pickle writes a tensor of a type that came late (uint16, uint32, uint64, float8_e4m3fn, ...) without an error, and
#            cannot read it: AttributeError. torch.save and torch.load can.
# guess:     what pickle writes, it reads, as for float32
# seen:      2026-11-28: "float32 ok", "uint32 AttributeError", "float8_e4m3fn AttributeError"
# relies:    collectives/python/horovod/torch/tensors.py (_reduce_tensor): objects with such tensors travel by bytes of ours
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0
seen=$("$folder/bin/python" -W ignore -c '
import pickle, torch
for name in "float32", "uint32", "float8_e4m3fn":
    written = pickle.dumps(torch.zeros(2, dtype=getattr(torch, name)))
    try:
        pickle.loads(written)
        print(name, "ok")
    except AttributeError:
        print(name, "AttributeError")')
echo "$seen"
[ "$seen" = "float32 ok
uint32 AttributeError
float8_e4m3fn AttributeError" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
