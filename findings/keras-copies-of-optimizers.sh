#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Keras 3.15.1 (on JAX 0.10.2)
# behaviour: copy.deepcopy() of an optimizer that has taken steps returns one without its momenta and with a count of 0
#            steps; a warning says that the loading of variables is skipped. The copy goes through Keras's file format,
#            and the optimizer that this loads into has no momenta yet.
# guess:     a deep copy has the class and the state of the original
# seen:      2026-11-28, "momentum of the copy: none, its steps: 0"
# relies:    collectives/python/horovod/_keras/optimizer.py (__reduce__), checks/keras_training.py (check_copies)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q keras==3.15.1 jax==0.10.2 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }

seen=$(KERAS_BACKEND=jax "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import copy

import keras
import numpy as np

model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
model.compile(optimizer, "mse")
model.fit(np.ones((8, 3)), np.ones((8, 2)), batch_size=4, verbose=0)
assert any("momentum" in variable.path for variable in optimizer.variables)

duplicate = copy.deepcopy(optimizer)
momenta = [variable for variable in duplicate.variables if "momentum" in variable.path]
print(f"momentum of the copy: {momenta or 'none'}, its steps: {int(duplicate.iterations)}")
PYTHON
)
echo "$seen"
[ "$seen" = "momentum of the copy: none, its steps: 0" ] || { echo "copies no longer behave as described" >&2; exit 1; }
