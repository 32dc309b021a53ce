#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch) with NumPy 2.4.6 and safetensors 0.8.0; torch 1.13 and safetensors 0.5.3 behave alike
# behaviour: the imaginary part of a conjugated tensor is a view whose sign is a flag. DLPack hands the memory over without
#            the flag, so NumPy reads the wrong sign; a conjugated tensor is refused. safetensors writes both without
#            their signs. torch.save and Tensor.numpy() do not.
# guess:     a tensor with such a flag is exported right, or refused, as Tensor.numpy() does
# seen:      2026-11-29, the lines that the script compares
# relies:    TorchFramework.dense() and plain() in collectives/python/horovod/torch/tensors.py, which ask is_neg() and
#            is_conj() before memory is read; torch_ops.check_sums_of_complex_numbers
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 || { echo "needs PyPI"; exit 77; }
seen=$("$folder/bin/python" -W ignore - <<'PYTHON'
import io

import numpy as np
import torch
from safetensors.torch import load, save


def saved(tensor):
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    return torch.load(file)


def attempt(function, tensor):
    try:
        return function(tensor).tolist()
    except (RuntimeError, BufferError):
        return "refused"


conjugated = torch.tensor([1 + 2j]).conj()
for tensor in conjugated.imag, conjugated:
    print(tensor.tolist(), "torch.save", attempt(saved, tensor), "numpy()", attempt(torch.Tensor.numpy, tensor),
          "DLPack", attempt(np.from_dlpack, tensor), "safetensors", attempt(lambda x: load(save({"x": x}))["x"], tensor))
PYTHON
)
echo "$seen"
[ "$seen" = "[-2.0] torch.save [-2.0] numpy() refused DLPack [2.0] safetensors [2.0]
[(1-2j)] torch.save [(1-2j)] numpy() refused DLPack refused safetensors [(1+2j)]" ] ||
  { echo "signs no longer behave as described" >&2; exit 1; }
