#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   NumPy 2.4.6, h5py 3.16.0, safetensors 0.8.0, ml_dtypes 0.6.0
# behaviour: numpy.save and h5py write arrays of bfloat16 and float8_e4m3fn without a word, and read them back as raw bytes
#            (V2, V1): which type they had is lost. numpy.save also writes float8_e5m2, and numpy.load cannot read the file;
#            h5py refuses it. safetensors keeps bfloat16; it writes both float8 types, and load_file() cannot read them.
# guess:     the dtype is read back, or refused when it is written
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; what hora.numpy does with such raw bytes: it copies them, and
#            refuses to add them up
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numpy==2.4.6 h5py==3.16.0 safetensors==0.8.0 ml_dtypes==0.6.0 ||
  { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$(cd "$folder" && venv/bin/python - <<'PYTHON'
import h5py
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file



def read_back(write, read):
    try:
        write()
        return read().dtype
    except (AttributeError, TypeError, ValueError) as error:
        return error


def through_hdf5():
    with h5py.File("file.h5") as file:
        return file["array"][()]


for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
    array = np.array([1, 2]).astype(getattr(ml_dtypes, name))
    print(name)
    print(" numpy", read_back(lambda: np.save("file.npy", array), lambda: np.load("file.npy")))
    print(" h5py", read_back(lambda: h5py.File("file.h5", "w").create_dataset("array", data=array).file.close(), through_hdf5))
    print(" safetensors", read_back(lambda: save_file({"array": array}, "file"), lambda: load_file("file")["array"]))
PYTHON
)
echo "$seen"
[ "$seen" = "bfloat16
 numpy |V2
 h5py |V2
 safetensors bfloat16
float8_e4m3fn
 numpy |V1
 h5py |V1
 safetensors module 'numpy' has no attribute 'float8_e4m3fn'
float8_e5m2
 numpy descr is not a valid dtype descriptor: '<f1'
 h5py Unsupported float type (float8_e5m2)
 safetensors module 'numpy' has no attribute 'float8_e5m2'" ] || { echo "they no longer behave as described" >&2; exit 1; }
