#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   JAX 0.10.2 and 0.4.30 (CPU)
# behaviour: jax.device_put of a NumPy array shares its memory if that begins at a multiple of 64 bytes (16 in 0.4.30), and
#            copies it otherwise. So a later write to the NumPy array, a buffer of a data loader say, changes the JAX array
#            or not, as malloc has it. jnp.asarray does so in 0.4.30 and copies in 0.10.2; jnp.array copies.
# guess:     what device_put returns is a copy, as arrays of JAX are immutable, whatever the address
# seen:      2026-11-29, the lines that the script compares
# relies:    as_jax() in collectives/python/hora/jax_operations.py: results begin at such addresses (aligned_arrays.py), so that
#            JAX takes them without a copy; jax_face.check_results_are_not_copied
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np


def array_at(offset):
    memory = np.zeros(256, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + 64].view(np.float32)


def follows(function, offset):
    source = array_at(offset)
    result = jax.block_until_ready(function(source))
    source[0] = 99
    return "shared" if result[0] == 99 else "copied"


for function in jax.device_put, jnp.asarray, jnp.array:
    seen = " ".join(follows(function, offset) for offset in (0, 16, 4))
    print(f"{jax.__version__} {function.__name__} at 0, 16, 4: {seen}")
PYTHON
export JAX_PLATFORMS=cpu
seen=$(for version in 0.4.30 0.10.2; do
  python3 -m venv "$folder/$version"
  numpy=numpy
  [ "$version" != 0.4.30 ] || numpy='numpy<2'
  "$folder/$version/bin/pip" install -q "jax==$version" "jaxlib==$version" "$numpy" || exit 77
  "$folder/$version/bin/python" "$folder/program.py"
done) || { echo "needs Python 3.11 or 3.12, and PyPI"; exit 77; }
echo "$seen"
[ "$seen" = "0.4.30 device_put at 0, 16, 4: shared shared copied
0.4.30 asarray at 0, 16, 4: shared shared copied
0.4.30 array at 0, 16, 4: copied copied copied
0.10.2 device_put at 0, 16, 4: shared copied copied
0.10.2 asarray at 0, 16, 4: copied copied copied
0.10.2 array at 0, 16, 4: copied copied copied" ] || { echo "JAX no longer behaves as described" >&2; exit 1; }
