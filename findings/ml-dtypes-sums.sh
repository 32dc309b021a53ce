#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   ml_dtypes 0.6.0, NumPy 2.4.6, JAX 0.10.2
# behaviour: numpy.sum of 1000 ones of bfloat16 is 256, numpy.mean of 300 is 0.85, and the sum of ones of float8_e4m3fn
#            never exceeds 16: each addition is rounded, until adding 1 changes nothing. float16 has sums in pairs, and means
#            in float32, and jax.numpy adds bfloat16 in float32.
# guess:     1000 and 1, as of float16, the other type of two bytes
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know": hora.numpy reduces such arrays
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q jax==0.10.2 ml_dtypes==0.6.0 numpy==2.4.6 ||
  { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$("$folder/venv/bin/python" - <<'PYTHON'
import jax.numpy as jnp
import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

print("sums of 1000:", *(float(np.ones(1000, dtype).sum()) for dtype in (bfloat16, float8_e4m3fn, np.float16)))
print("means of 300:", *(float(np.ones(300, dtype).mean()) for dtype in (bfloat16, np.float16)))
print("jax.numpy:", float(jnp.ones(1000, jnp.bfloat16).sum()), float(jnp.ones(300, jnp.bfloat16).mean()))
PYTHON
)
echo "$seen"
[ "$seen" = "sums of 1000: 256.0 16.0 1000.0
means of 300: 0.8515625 1.0
jax.numpy: 1000.0 1.0" ] || { echo "they no longer behave as described" >&2; exit 1; }
