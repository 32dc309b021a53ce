#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0, JAX 0.10.2, NumPy 2.4.6, ml_dtypes 0.6.0
# behaviour: PyTorch and JAX cast float64 to float16 by way of float32 and so round twice: of two numbers of float16, they may
#            take the one that is farther away. NumPy takes the nearest. To bfloat16 all of them round twice.
# guess:     each takes the nearest, as IEEE 754 has it
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know": Compression.fp16 casts as its framework does
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 jax==0.10.2 numpy==2.4.6 ml_dtypes==0.6.0 ||
  { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$("$folder/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
import torch
from ml_dtypes import bfloat16

jax.config.update("jax_enable_x64", True)
# Two numbers of float16 are 2**-10 apart here, two of bfloat16 2**-7: each is just above half of the way to the next.
half, brain = np.array([1 + 2**-11 + 2**-40]), np.array([1 + 2**-8 + 2**-40])
print("float16 of 1 + 2**-11 + 2**-40, times 1024")
print(" PyTorch", torch.from_numpy(half).half().item() * 1024)
print(" NumPy", half.astype(np.float16).item() * 1024)
print(" JAX", jnp.asarray(half).astype(jnp.float16).item() * 1024)
print("bfloat16 of 1 + 2**-8 + 2**-40, times 128")
print(" PyTorch", torch.from_numpy(brain).bfloat16().item() * 128)
print(" ml_dtypes", float(brain.astype(bfloat16)[0]) * 128)
print(" JAX", float(jnp.asarray(brain).astype(jnp.bfloat16)[0]) * 128)
PYTHON
)
echo "$seen"
[ "$seen" = "float16 of 1 + 2**-11 + 2**-40, times 1024
 PyTorch 1024.0
 NumPy 1025.0
 JAX 1024.0
bfloat16 of 1 + 2**-8 + 2**-40, times 128
 PyTorch 128.0
 ml_dtypes 128.0
 JAX 128.0" ] || { echo "they no longer behave as described" >&2; exit 1; }
