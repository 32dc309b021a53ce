# SPDX-License-Identifier: Apache-2.0
"""A translator of reversed words by OpenNMT-tf, with the horovod module that its program hands to the Runner.

Usage: opennmt_horovod.py FOLDER"""

import os
import random
import sys

import numpy as np
import opennmt
import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
folder = os.path.join(sys.argv[1], str(hvd.rank()))
os.makedirs(folder)
random.seed(1)
lines = [[random.choice("abcdefgh") for _ in range(random.randint(2, 5))] for _ in range(64)]
for name, text in (
    ("source", [" ".join(line) for line in lines]),
    ("target", [" ".join(reversed(line)) for line in lines]),
    ("words", ["<blank>", "<s>", "</s>", *"abcdefgh"]),
):
    with open(os.path.join(folder, name), "w") as file:
        file.write("\n".join(text) + "\n")
tf.random.set_seed(7 + hvd.rank())  # the first step makes the weights those of rank 0
config = {
    "model_dir": os.path.join(folder, "model"),
    "data": {
        "source_vocabulary": os.path.join(folder, "words"),
        "target_vocabulary": os.path.join(folder, "words"),
        "train_features_file": os.path.join(folder, "source"),
        "train_labels_file": os.path.join(folder, "target"),
    },
    "params": {"optimizer": "Adam", "learning_rate": 0.002},
    "train": {"batch_size": 8, "batch_type": "examples", "max_step": 20, "save_checkpoints_steps": 1000},
}
made = []


def make_model():
    made.append(opennmt.models.TransformerTiny())
    return made[-1]


_, summary = opennmt.Runner(make_model, config, seed=1).train(num_devices=1, hvd=hvd, return_summary=True)
weights = np.concatenate([variable.numpy().ravel() for variable in made[-1].trainable_variables])
found = ",".join(f"{value:.6f}" for value in (weights.sum(), np.abs(weights).sum(), weights.std()))
print(f"rank {hvd.rank()} of {hvd.size()} found {found} loss {summary['last_loss']:.6f}", flush=True)
