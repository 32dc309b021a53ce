#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   safetensors 0.8.0, 0.7.0 and 0.3.1 with NumPy
# behaviour: safetensors.numpy of 0.8.0 writes the memory from an array's first element on, whatever its strides: a
#            transposed array, a slice and one in Fortran's order are read back with other elements, without an error.
#            Older releases write the elements. The documentation asks for contiguous arrays, and safetensors.torch
#            refuses others.
# guess:     as before, or refused as in safetensors.torch
# seen:      2026-11-29, "0.8.0: transposed wrong, slice wrong, Fortran wrong"; older ones all right
# relies:    docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numpy || { echo "needs PyPI"; exit 77; }
cat >"$folder/program.py" <<'PYTHON'
import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

rows = np.arange(6.0).reshape(2, 3)
arrays = {"transposed": rows.T, "slice": np.arange(6.0)[::2], "Fortran": np.asfortranarray(rows)}
save_file(arrays, "file")
read = load_file("file")
verdicts = (f"{name} {'right' if np.array_equal(read[name], array) else 'wrong'}" for name, array in arrays.items())
print(f"{safetensors.__version__}: {', '.join(verdicts)}")
PYTHON
seen=$(cd "$folder" && for version in 0.3.1 0.7.0 0.8.0; do
  venv/bin/pip install -q --no-deps "safetensors==$version"
  venv/bin/python program.py
done)
echo "$seen"
[ "$seen" = "0.3.1: transposed right, slice right, Fortran right
0.7.0: transposed right, slice right, Fortran right
0.8.0: transposed wrong, slice wrong, Fortran wrong" ] || { echo "safetensors no longer behaves as described" >&2; exit 1; }
