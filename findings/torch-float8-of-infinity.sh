#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0, JAX 0.10.2, ml_dtypes 0.6.0
# behaviour: PyTorch's cast to float8_e4m3fn makes 448, its largest number, of whatever is larger, of infinity, too: a loss
#            that has overflowed looks like a finite one. JAX and ml_dtypes make NaN of it. All make infinity of it in
#            float8_e5m2.
# guess:     one type, one cast: NaN, as the type has no infinity
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; hvd copies such tensors and never casts to them
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 jax==0.10.2 ml_dtypes==0.6.0 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$("$folder/bin/python" - <<'PYTHON'
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch

values = [448.0, 500.0, float("inf"), float("nan")]
for name in ("float8_e4m3fn", "float8_e5m2"):
    print(name)
    print(" PyTorch", torch.tensor(values).to(getattr(torch, name)).float().tolist())
    print(" ml_dtypes", np.array(values).astype(getattr(ml_dtypes, name)).astype(float).tolist())
    print(" JAX", jnp.array(values).astype(getattr(jnp, name)).astype(float).tolist())
PYTHON
)
echo "$seen"
[ "$seen" = "float8_e4m3fn
 PyTorch [448.0, 448.0, 448.0, nan]
 ml_dtypes [448.0, nan, nan, nan]
 JAX [448.0, nan, nan, nan]
float8_e5m2
 PyTorch [448.0, 512.0, inf, nan]
 ml_dtypes [448.0, 512.0, inf, nan]
 JAX [448.0, 512.0, inf, nan]" ] || { echo "they no longer behave as described" >&2; exit 1; }
