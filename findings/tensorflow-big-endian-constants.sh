#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   TensorFlow 2.21.0 (tensorflow-cpu); 2.12.0 behaves alike
# behaviour: tf.constant and tf.convert_to_tensor of a big-endian NumPy array (of a FITS, netCDF or HDF5 file) are right
#            outside of a tf.function. Inside of one, in Dataset.map and in a Session they take the bytes as they are, and
#            so does tf.make_tensor_proto. An array that is an operand, an argument or a feed is right.
# guess:     the same line gives the same numbers in a tf.function, as it does for all other arrays
# seen:      2026-11-29, the lines that the script compares
# relies:    to_tensor() in collectives/python/horovod/tensorflow/tensors.py; tensorflow_ops.check_big_endian_arrays
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q tensorflow-cpu==2.21.0 || { echo "needs PyPI"; exit 77; }
seen=$(TF_CPP_MIN_LOG_LEVEL=3 "$folder/bin/python" - 2>"$folder/log" <<'PYTHON'
import numpy as np
import tensorflow as tf

big = np.array([1, 2], dtype=">i4")
data = tf.data.Dataset.range(1).map(lambda _: tf.constant(big))
print("eager", tf.constant(big).numpy())
print("function", tf.function(lambda: tf.constant(big))().numpy())
print("Dataset.map", next(iter(data)).numpy())
print("operand", tf.function(lambda: tf.zeros(2, tf.int32) + big)().numpy())
print("argument", tf.function(tf.identity)(big).numpy())
print("proto", tf.make_ndarray(tf.make_tensor_proto(big)))
PYTHON
) || tail "$folder/log" >&2
echo "$seen"
[ "$seen" = "eager [1 2]
function [16777216 33554432]
Dataset.map [16777216 33554432]
operand [1 2]
argument [1 2]
proto [16777216 33554432]" ] || { echo "TensorFlow no longer behaves as described" >&2; exit 1; }
