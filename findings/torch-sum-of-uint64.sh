#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0, NumPy 2.4.6
# behaviour: sum() of a uint64 tensor is int64: 2**63 + 5, which uint64 can hold, is negative. The conversion to float, item()
#            and sort() are right; max(), + and > say that they are not implemented for the type. NumPy adds in uint64.
# guess:     uint64, as of NumPy, or an error
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; hvd copies such tensors and refuses to add them up
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 numpy==2.4.6 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$("$folder/bin/python" - <<'PYTHON'
import numpy as np
import torch

values = [2**63, 5]
tensor = torch.tensor(values, dtype=torch.uint64)
print("NumPy", np.array(values, dtype=np.uint64).sum(), np.array(values, dtype=np.uint64).sum().dtype)
print("sum", tensor.sum().item(), tensor.sum().dtype)
print("cumsum", tensor.cumsum(0).tolist())
print("as float", tensor.double().sum().item() == 2.0**63, "items", tensor.tolist() == values)
PYTHON
)
echo "$seen"
[ "$seen" = "NumPy 9223372036854775813 uint64
sum -9223372036854775803 torch.int64
cumsum [-9223372036854775808, -9223372036854775803]
as float True items True" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
