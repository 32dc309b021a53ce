# SPDX-License-Identifier: Apache-2.0
"""A linear model in a Session of TensorFlow, by tensorpack's trainer for Horovod."""

import numpy as np
import tensorflow
import tensorflow.compat.v1 as tf
from tensorpack import Callback, DataFromList, FeedInput, HorovodTrainer, ModelDesc, TrainConfig
from tensorpack.train import launch_train_with_config

import horovod.tensorflow as hvd


class Line(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec((8, 3), tf.float32, "rows"), tf.TensorSpec((8, 1), tf.float32, "wanted")]

    def build_graph(self, rows, wanted):
        weight = tf.get_variable("weight", [3, 1], initializer=tf.random_normal_initializer(seed=7 + hvd.rank()))
        bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean((tf.matmul(rows, weight) + bias - wanted) ** 2, name="loss")
        return loss

    def optimizer(self):
        return tf.train.GradientDescentOptimizer(0.1)


class Report(Callback):
    _chief_only = False  # on every rank

    def _setup_graph(self):
        self.variables = tf.trainable_variables()
        self.loss = tf.get_default_graph().get_tensor_by_name("loss:0")

    def _after_train(self):
        values = dict(zip([each.op.name for each in self.variables], self.trainer.sess.run(self.variables)))
        found = [*values["weight"].flatten(), *values["bias"]]
        loss = np.mean((rows @ values["weight"] + values["bias"] - wanted) ** 2)
        text = ",".join(f"{value:.6f}" for value in found)
        print(f"rank {hvd.rank()} of {hvd.size()} found {text} loss {loss:.6f}", flush=True)


tensorflow.global_variables = tf.global_variables  # where the trainer of tensorpack 0.11 looks for it
hvd.init()
generator = np.random.default_rng(1)
rows = generator.normal(size=(64, 3)).astype(np.float32)
wanted = rows @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 3
batches = [[rows[i : i + 8], wanted[i : i + 8]] for i in range(0, 64, 8)]
config = TrainConfig(
    model=Line(),
    data=FeedInput(DataFromList(batches[hvd.rank() :: hvd.size()], shuffle=True)),
    steps_per_epoch=20,
    max_epoch=6,
    callbacks=[Report()],
    monitors=[],
    extra_callbacks=[],
)
launch_train_with_config(config, HorovodTrainer(average=True))
