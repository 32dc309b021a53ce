# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's data service as a job of its own: its command, the configuration file, trainings that use it."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from support import job
from support.frameworks import VARIABLES, python_with

DEADLINE_S = 400  # TensorFlow starts slowly where jobs share few cores

TRAINING = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service

hvd.init()
rank, size = hvd.rank(), hvd.size()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True, timeout=300)
assert config == TfDataServiceConfig.from_dict(config.to_dict())

def squares():
    return tf.data.Dataset.range(20).map(lambda x: x * x)

def values_of(dataset):
    return sorted(int(each) for each in dataset.as_numpy_iterator())

ALL = [x * x for x in range(20)]
if sys.argv[2] == "training":
    with tf_data_service(config, rank) as dispatcher:
        service = tf.data.experimental.service.distribute("distributed_epoch", dispatcher)
        assert values_of(squares().apply(service)) == ALL
        hvd.allreduce(1.0)  # rank 0 has the dispatcher of all
    try:
        send_to_data_service(squares(), config, rank)
    except RuntimeError as error:
        assert "tf_data_service()" in str(error)
else:
    assert values_of(squares().send_to_data_service(config, rank, size)) == ALL
    if config.dispatchers == 1:
        shared = values_of(squares().send_to_data_service(config, rank, size, reuse_dataset=True))
        everyones = hvd.allgather_object(shared)
        assert sorted(sum(everyones, [])) == ALL, everyones
    else:
        try:
            squares().send_to_data_service(config, rank, size, reuse_dataset=True)
        except ValueError as error:
            assert "one dispatcher" in str(error)
hvd.allreduce(1.0)
if rank == 0:
    config.compute_client(verbose=2).shutdown()
print("TRAINED", rank, flush=True)
"""


@pytest.mark.parametrize(
    "side, options",
    [("compute", []), ("compute", ["--dispatchers", "2"]), ("training", ["--dispatcher-side", "training"])],
    ids=["one dispatcher", "two dispatchers", "on the side of the training"],
)
def test_a_training_uses_a_service(tmp_path, side, options):
    python = python_with("tensorflow")
    if python is None:
        pytest.skip("no interpreter has tensorflow (HORA_TEST_VENV_TF)")
    config = tmp_path / "compute.json"
    (tmp_path / "training.py").write_text(TRAINING)
    command = [*job.horarun(2), python, "-m", "horovod.tensorflow.data.compute_worker", *options, str(config)]
    with open(tmp_path / "service.log", "w+") as log:
        service = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=job.environment(**VARIABLES),
            start_new_session=True,
        )
        try:
            done = job.run_python(
                2, tmp_path / "training.py", config, side, timeout=DEADLINE_S, python=python, **VARIABLES
            )
            log.seek(0)
            assert done.code == 0 and done.out.count("TRAINED") == 2, f"{done}\n--- service\n{log.read()[-4000:]}"
            assert service.wait(DEADLINE_S) == 0
        finally:
            if service.poll() is None:
                os.killpg(service.pid, signal.SIGTERM)
                service.wait(60)
    assert not config.exists(), "the configuration file, which holds the key, is left"


@pytest.fixture(scope="module")
def registry_module():
    """By its path: the package around it imports TensorFlow."""
    sys.path.insert(0, str(job.PACKAGES))
    path = job.PACKAGES / "horovod" / "tensorflow" / "data" / "registry.py"
    spec = importlib.util.spec_from_file_location("registry", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def registry(registry_module):
    opened = registry_module.Registry(2)
    yield opened
    opened.close()


def client_of(registry_module, registry, key=None, timeout=60):
    return registry_module.RegistryClient(f"127.0.0.1:{registry.port}", key or registry.key.hex(), timeout)


def test_a_dispatcher_is_found_when_it_comes(registry_module, registry):
    client = client_of(registry_module, registry)
    found = []
    waiting = threading.Thread(target=lambda: found.append(client.wait_for_dispatcher(1)))
    waiting.start()
    client.register_dispatcher(1, "grpc://node:5")
    waiting.join(30)
    assert found == ["grpc://node:5"]


def test_the_end_reaches_all(registry_module, registry):
    client = client_of(registry_module, registry)
    waiting = threading.Thread(target=client.wait_for_shutdown)
    waiting.start()
    client.shutdown()
    waiting.join(30)
    assert not waiting.is_alive()
    assert client.wait_for_dispatcher(0, end_with_service=True) == ""
    with pytest.raises(RuntimeError, match="has ended"):
        client.wait_for_dispatcher(0)


def test_outsiders_and_mistakes_are_refused(registry_module, registry):
    outsider = client_of(registry_module, registry, key="00" * 32)
    for ask in (outsider.shutdown, lambda: outsider.register_dispatcher(0, "x"), outsider.wait_for_shutdown):
        with pytest.raises(PermissionError, match="refused"):
            ask()
    with pytest.raises(ValueError, match="the dispatchers 0 to 1"):
        client_of(registry_module, registry).register_dispatcher(2, "grpc://node:5")
    assert not registry.ended and not registry.dispatchers


def test_a_service_that_is_gone_is_an_error(registry_module):
    gone = registry_module.Registry(1)
    client = client_of(registry_module, gone)
    gone.close()
    with pytest.raises(ConnectionError, match="does not answer"):
        client.wait_for_dispatcher(0)
    client.shutdown()  # is what it asks for


def test_the_key_does_not_cross_the_network(registry_module, registry):
    """A listener in between, which sees all that both sides say."""
    seen = []

    def pass_on(source, target):
        while data := source.recv(65536):
            seen.append(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def stand_between(listener):
        ours, _ = listener.accept()
        with ours, socket.create_connection(("127.0.0.1", registry.port)) as theirs:
            back = threading.Thread(target=pass_on, args=(theirs, ours))
            back.start()
            pass_on(ours, theirs)
            back.join(30)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        between = threading.Thread(target=stand_between, args=(listener,))
        between.start()
        key = registry.key.hex()
        client = registry_module.RegistryClient(f"127.0.0.1:{listener.getsockname()[1]}", key, 60)
        client.register_dispatcher(0, "grpc://node:5")
        between.join(30)
    said = b"".join(seen)
    assert b"grpc://node:5" in said and key.encode() not in said and registry.key not in said
    assert registry.dispatchers == {0: "grpc://node:5"}
