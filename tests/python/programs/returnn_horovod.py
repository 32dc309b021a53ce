# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with the TensorFlow engine of RETURNN, by its own program; every rank says what it found.

Usage: returnn_horovod.py FOLDER"""

import os
import sys

import numpy as np
import returnn.__main__ as program
from returnn.tf.engine import Engine

import horovod.tensorflow as hvd

SETTINGS = """#!rnn.py
use_tensorflow = True
task = "train"
use_horovod = True
horovod_reduce_type = "grad"
horovod_dataset_distribution = "random_seed_offset"
train = {"class": "Task12AXDataset", "num_seqs": 40}
dev = {"class": "Task12AXDataset", "num_seqs": 8, "fixed_random_seed": 1}
num_inputs, num_outputs = 9, 2
network = {
    "hidden": {"class": "linear", "activation": "tanh", "n_out": 8, "from": "data:data"},
    "output": {"class": "softmax", "loss": "ce", "from": "hidden", "target": "classes"},
}
batch_size, max_seqs = 500, 4
optimizer = {"class": "adam"}
learning_rate = 0.01
num_epochs = 2
device = "cpu"
log_verbosity = 3
"""


def train_and_report(self):
    train(self)
    session = self.tf_session
    weights = np.concatenate([each.eval(session).ravel() for each in self.network.get_trainable_params()])
    found = ",".join(f"{value:.9f}" for value in (weights.sum(), np.abs(weights).sum(), weights.std()))
    print(f"rank {hvd.rank()} of {hvd.size()} found {found} loss 0", flush=True)


hvd.init()
folder = os.path.join(sys.argv[1], str(hvd.rank()))
os.makedirs(folder)
os.chdir(folder)
with open("settings", "w") as file:
    # Ranks begin with different weights; RETURNN makes them those of rank 0.
    file.write(SETTINGS + f'random_seed = {7 + hvd.rank()}\nmodel = "model/network"\n')
train = Engine.train
Engine.train = train_and_report
program.main([sys.argv[0], "settings"])
