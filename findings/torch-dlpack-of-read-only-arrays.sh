#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch) with NumPy 2.4.6 and 1.26.4
# behaviour: torch.from_dlpack of a read-only NumPy array gives a tensor that can be written to, without a warning: an
#            operation in place changes the array, and so an object that cannot change, such as bytes or an array of JAX.
#            torch.from_numpy warns. With NumPy 1, it is a BufferError.
# guess:     it is refused, as by NumPy 1, or copied; NumPy 2 passes the flag for "read-only" on
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 || { echo "needs PyPI"; exit 77; }
seen=$(for version in 1.26.4 2.4.6; do
  "$folder/bin/pip" install -q "numpy==$version"
  "$folder/bin/python" - 2>"$folder/log" <<'PYTHON'
import warnings

import numpy as np
import torch

warnings.simplefilter("error")
data = bytearray([1, 2, 3])
frozen = np.frombuffer(bytes(data), np.uint8)
try:
    tensor = torch.from_dlpack(frozen)
    tensor += 1
    print(f"NumPy {np.__version__}: read-only {not frozen.flags.writeable}, now {frozen.tolist()}")
except BufferError:
    print(f"NumPy {np.__version__}: refused")
PYTHON
done)
echo "$seen"
[ "$seen" = "NumPy 1.26.4: refused
NumPy 2.4.6: read-only True, now [2, 3, 4]" ] || { tail "$folder/log" >&2; echo "PyTorch no longer behaves as described" >&2; exit 1; }
