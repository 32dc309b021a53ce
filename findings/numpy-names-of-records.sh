#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   NumPy 2.4.6; 1.26.4 behaves alike
# behaviour: neither `dtype.name` nor `dtype.str` of a record type has its fields: all records of one size have one name,
#            `numpy.dtype(str)` gives raw bytes, and `__array_interface__["typestr"]` is the same; only `descr` and `str()`
#            differ, and `isnative` is the one thing that byte orders change.
# guess:     `numpy.dtype(array.dtype.str)` is the array's type, as it is for all numbers, texts and dates
# seen:      2026-12-01, the lines that the script compares
# relies:    collectives/python/hora/numpy_arrays.py (code_and_shape), which asks str() of a record type;
#            numpy_ops.check_ranks_with_different_types_of_one_size
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for release in 1.26.4 2.4.6; do
  python3 -m venv "$folder/$release"
  "$folder/$release/bin/pip" install -q "numpy==$release" || { echo "needs PyPI"; exit 77; }
  seen=$("$folder/$release/bin/python" - <<'PYTHON'
import numpy as np

for fields in [("a", "<i4"), ("b", "<i4")], [("a", "<i4"), ("b", "<f4")], [("x", ">f8")]:
    dtype = np.dtype(fields)
    typestr = np.zeros(1, dtype).__array_interface__["typestr"]
    print(dtype.name, dtype.str, typestr, np.dtype(dtype.str) == dtype, dtype.isnative, str(dtype))
for name in "<i4", ">f8", "<U3", "<M8[ms]":
    print(name, np.dtype(np.dtype(name).str) == np.dtype(name))
PYTHON
)
  echo "numpy $release"
  echo "$seen"
  [ "$seen" = "void64 |V8 |V8 False True [('a', '<i4'), ('b', '<i4')]
void64 |V8 |V8 False True [('a', '<i4'), ('b', '<f4')]
void64 |V8 |V8 False False [('x', '>f8')]
<i4 True
>f8 True
<U3 True
<M8[ms] True" ] || { echo "names of types no longer read as described" >&2; exit 1; }
done
