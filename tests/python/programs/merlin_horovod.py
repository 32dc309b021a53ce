# SPDX-License-Identifier: Apache-2.0
"""A small recommender of merlin-models, with an optimizer that the program has wrapped. Merlin looks at the module of
an optimizer whether to wrap it."""

import hashlib

import merlin.models.tf as mm
import numpy as np
import tensorflow as tf
from merlin.datasets.synthetic import generate_data

import horovod.tensorflow.keras as hvd

hvd.init()
tf.keras.utils.set_random_seed(7 + hvd.rank())
data = generate_data("e-commerce", num_rows=200).repartition(hvd.size())  # each rank reads its partition
data.schema = data.schema.select_by_name(["user_categories", "item_category", "item_brand", "click"])
model = mm.Model(mm.InputBlock(data.schema), mm.MLPBlock([8]), mm.BinaryOutput("click"))
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.1))
model.compile(optimizer=optimizer, run_eagerly=False)
assert model.optimizer is optimizer
history = model.fit(data, batch_size=50, epochs=2, verbose=0)
weights = np.concatenate([np.asarray(each.numpy(), np.float32).ravel() for each in model.trainable_variables])
found = hashlib.sha256(np.round(weights, 5).tobytes()).hexdigest()[:16]
print(f"rank {hvd.rank()} of {hvd.size()} found {found} loss {history.history['loss'][-1]:.6f}", flush=True)
