#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   pyarrow 26.0.1 with NumPy 2.4.6
# behaviour: pa.Tensor.from_numpy() of a big-endian array (of FITS, netCDF, HDF5) takes the bytes for those of native numbers:
#            its elements are others, without an error. pa.array() refuses such an array.
# guess:     refused, or swapped
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; hora.numpy refuses such an array where it computes, and
#            copies its bytes and its dtype
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q pyarrow==26.0.1 numpy==2.4.6 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$("$folder/bin/python" - <<'PYTHON'
import numpy as np
import pyarrow as pa

array = np.array([1, 2], dtype=">i4")
try:
    print("array", pa.array(array).to_pylist())
except pa.ArrowNotImplementedError as error:
    print("array", error)
tensor = pa.Tensor.from_numpy(array)
print("tensor", tensor.type, tensor.to_numpy().tolist())
sent = pa.BufferOutputStream()
pa.ipc.write_tensor(tensor, sent)
print("read back", pa.ipc.read_tensor(pa.BufferReader(sent.getvalue())).to_numpy().tolist())
PYTHON
)
echo "$seen"
[ "$seen" = "array Byte-swapped arrays not supported
tensor int32 [16777216, 33554432]
read back [16777216, 33554432]" ] || { echo "pyarrow no longer behaves as described" >&2; exit 1; }
