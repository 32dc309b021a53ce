#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Keras 3.15.1 with JAX 0.10.2; with TensorFlow 2.21 and PyTorch 2.15 as backends it behaves alike
# behaviour: one empty batch in training, as a mask that selects no row gives it, makes NaN of both moving statistics of
#            BatchNormalization, without a warning. They stay NaN whatever follows, and so does every prediction.
# guess:     an empty batch changes nothing, as with torch.nn.BatchNorm1d
# seen:      2026-12-01, the lines that the script compares
# relies:    SyncBatchNorm.forward() in collectives/python/horovod/torch/sync_batch_norm.py, which keeps the statistics;
#            torch_gradients.check_sync_batch_norm
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q keras==3.15.1 jax==0.10.2 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$(HOME="$folder" KERAS_BACKEND=jax JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import keras
import numpy as np

layer = keras.layers.BatchNormalization(momentum=0.5)


def train(batch):
    layer(batch, training=True)
    print(np.asarray(layer.moving_mean), np.asarray(layer.moving_variance))


rows = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
train(rows)
train(rows[rows[:, 0] > 5])
for _ in range(3):
    train(rows)
print(np.asarray(layer(rows)).tolist())
PYTHON
)
echo "$seen"
[ "$seen" = "[1. 2.] [1.  2.5]
[nan nan] [nan nan]
[nan nan] [nan nan]
[nan nan] [nan nan]
[nan nan] [nan nan]
[[nan, nan], [nan, nan]]" ] || { echo "Keras no longer behaves as described" >&2; exit 1; }
