# SPDX-License-Identifier: Apache-2.0
"""Trains a small potential with the TensorFlow backend of DeePMD-kit, by its own program; each rank prints its result.

Usage: deepmd_horovod.py FOLDER"""

import json
import os
import sys

import numpy as np
from deepmd.main import main
from deepmd.tf.env import tf
from deepmd.tf.train.trainer import DPTrainer

import horovod.tensorflow as hvd

STEPS = 20


def write_data():
    os.makedirs("data/set.000")
    generator = np.random.default_rng(1)
    frames, atoms, edge = 16, 6, 8
    np.savetxt("data/type.raw", [0, 1, 1, 0, 1, 1], fmt="%d")
    with open("data/type_map.raw", "w") as file:
        file.write("O\nH\n")
    for name, values in (
        ("box", np.tile(np.eye(3).ravel() * edge, (frames, 1))),
        ("coord", generator.uniform(0, edge, (frames, atoms * 3))),
        ("energy", generator.normal(size=(frames, 1))),
        ("force", generator.normal(size=(frames, atoms * 3))),
    ):
        np.save(f"data/set.000/{name}.npy", values.astype(np.float32))


def write_input():
    shape = {"type": "se_e2_a", "sel": [4, 8], "rcut_smth": 0.5, "rcut": 4.0, "neuron": [4, 8], "axis_neuron": 2}
    settings = {
        "model": {
            "type_map": ["O", "H"],
            "descriptor": {**shape, "seed": 7 + hvd.rank()},  # the broadcast makes the weights those of rank 0
            "fitting_net": {"neuron": [8, 8], "seed": 7 + hvd.rank()},
        },
        "learning_rate": {"type": "exp", "start_lr": 1e-3, "stop_lr": 1e-5, "decay_steps": 10},
        "loss": {"type": "ener"},
        "training": {
            "training_data": {"systems": ["data"], "batch_size": 2},
            "numb_steps": STEPS,
            "seed": 1,
            "disp_freq": 5,
            "save_freq": STEPS,
        },
    }
    with open("input.json", "w") as file:
        json.dump(settings, file)


def train_and_report(self, *args, **options):
    train(self, *args, **options)
    weights = np.concatenate([each.ravel() for each in self.sess.run(tf.trainable_variables())])
    found = ",".join(f"{value:.9f}" for value in (weights.sum(), np.abs(weights).sum(), weights.std()))
    print(f"rank {hvd.rank()} of {hvd.size()} found {found} loss 0", flush=True)


hvd.init()
folder = os.path.join(sys.argv[1], str(hvd.rank()))
os.makedirs(folder)
os.chdir(folder)
write_data()
write_input()
train = DPTrainer.train
DPTrainer.train = train_and_report
main(["--tf", "train", "input.json"])
