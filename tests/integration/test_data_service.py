# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's data service on one host, a training that uses it on another."""

import os

import pytest

PYTHON = os.path.join(os.environ.get("HORA_TEST_VENV_TF", ""), "bin", "python")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
DEADLINE_S = 400  # TensorFlow starts slowly where jobs share few cores

TRAINING = """\
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True, timeout=300)
assert config.address.startswith("node1:"), config.address
dataset = tf.data.Dataset.range(20).map(lambda x: x * x)
shared = dataset.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True)
mine = [int(each) for each in shared.as_numpy_iterator()]
everyones = hvd.allgather_object(mine)
assert sorted(sum(everyones, [])) == [x * x for x in range(20)], everyones
if hvd.rank() == 0:
    config.compute_client().shutdown()
print("TRAINED", hvd.rank(), flush=True)
"""


@pytest.mark.skipif(not os.path.exists(PYTHON), reason="HORA_TEST_VENV_TF names no environment with TensorFlow")
def test_service_and_training_on_two_hosts(horarun, hosts, shared):
    hosts(2)
    config = os.path.join(shared, "compute.json")
    script = os.path.join(shared, "data_service_training.py")
    with open(script, "w") as file:
        file.write(TRAINING)
    command = [PYTHON, "-m", "horovod.tensorflow.data.compute_worker", config]
    service = horarun.start("-np", 2, "-H", "node1:2", "--wdir", "/", *command, env=QUIET)
    done = horarun.run("-np", 2, "-H", "node2:2", "--wdir", "/", PYTHON, script, config, env=QUIET, timeout=DEADLINE_S)
    done.expect(0)
    assert done.text.count("TRAINED") == 2, done
    service.finish(timeout=DEADLINE_S).expect(0)
    assert not os.path.exists(config)
