# SPDX-License-Identifier: Apache-2.0
"""Modules and functions next to the public interface, which programs that build on Horovod import."""

import importlib
import io
import os
import sys
import threading

import pytest

from support import job

sys.path.insert(0, str(job.PACKAGES))

from horovod.common import util
from horovod.runner.common.util import codec, safe_shell_exec, secret, timeout
from horovod.runner.common.util import env as env_util
from horovod.runner.util import threads
from support.frameworks import VARIABLES, needed_python
from support.job import run_command
from support.processes import marked, wait_until


def test_environment_within_a_block(monkeypatch):
    monkeypatch.setenv("HORA_TEST_OLD", "before")
    monkeypatch.delenv("HORA_TEST_NEW", raising=False)
    with pytest.raises(KeyError), util.env(HORA_TEST_OLD=None, HORA_TEST_NEW="within"):
        assert "HORA_TEST_OLD" not in os.environ and os.environ["HORA_TEST_NEW"] == "within"
        raise KeyError
    assert os.environ["HORA_TEST_OLD"] == "before" and "HORA_TEST_NEW" not in os.environ


def test_a_cached_function_is_called_once_for_each_list_of_arguments():
    calls = []

    @util._cache
    def double(value, times=2):
        """Doubles."""
        calls.append(value)
        return None if value is None else value * times

    assert [double(2), double(2), double(2, times=3), double(None), double(None)] == [4, 4, 6, None, None]
    assert calls == [2, 2, None]
    assert double.__doc__ == "Doubles."


def test_functions_on_threads(capfd):
    assert threads.execute_function_multithreaded(lambda a, b: a + b, [[1, 2], [3, 4]]) == {0: 3, 1: 7}
    assert threads.execute_function_multithreaded(lambda a: 1 // a, [[0], [1]], max_concurrent_executions=1) == {1: 1}
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert threads.execute_function_multithreaded(lambda a: a, [[0]], block_until_all_done=False) is None
    with pytest.raises(ValueError, match="tuple"):
        threads.in_thread(print, args=[1])


@pytest.mark.parametrize("stopped", [False, True])
def test_a_function_that_waits_for_an_event(stopped):
    event, stop, called = threading.Event(), threading.Event(), []
    thread = threads.on_event(event, called.append, args=("now",), stop=stop, check_stop_interval_s=0.01)
    (stop if stopped else event).set()
    thread.join(30)
    assert not thread.is_alive() and called == ([] if stopped else ["now"])


def test_objects_as_text():
    text = codec.dumps_base64({"a": [1, 2]})
    assert isinstance(text, str) and codec.loads_base64(text) == {"a": [1, 2]}
    assert isinstance(codec.dumps_base64(1, to_ascii=False), bytes)


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, (0, 1)),
        ({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "4"}, (2, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, (1, 3)),
        ({"PMI_RANK": "1"}, ValueError),
    ],
)
def test_rank_and_size_from_the_environment(monkeypatch, variables, expected):
    for prefix in ("HOROVOD_", "OMPI_COMM_WORLD_", "PMI_"):
        for name in ("RANK", "SIZE"):
            monkeypatch.delenv(prefix + name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if expected is ValueError:
        with pytest.raises(ValueError, match="PMI_SIZE"):
            env_util.get_env_rank_and_size()
    else:
        assert env_util.get_env_rank_and_size() == expected


def test_which_variables_ranks_may_get():
    names = ("PATH", "BASH_FUNC_x%%", "OLDPWD", "MY_CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY")
    assert [name for name in names if env_util.is_exportable(name)] == ["PATH"]


def test_a_time_limit():
    limit = timeout.Timeout(60, "waiting for {activity}")
    assert not limit.timed_out() and 0 < limit.remaining() <= 60
    limit.check_time_out_for("nothing")
    over = timeout.Timeout(-1, "waiting for {activity}")
    assert over.timed_out() and over.remaining() == 0
    with pytest.raises(timeout.TimeoutException, match="waiting for hosts"):
        over.check_time_out_for("hosts")


def test_message_digests():
    key, other = secret.make_secret_key(), secret.make_secret_key()
    assert key != other and len(key) == secret.DIGEST_LENGTH
    digest = secret.compute_digest(key, "text")
    assert digest == secret.compute_digest(key, b"text") and len(digest) == secret.DIGEST_LENGTH
    assert secret.check_digest(key, b"text", digest)
    assert not secret.check_digest(other, b"text", digest) and not secret.check_digest(key, b"texts", digest)


def test_a_shell_command():
    out, err = io.StringIO(), io.StringIO()
    command = "echo out $COLOUR; echo err >&2; exit 3"
    assert safe_shell_exec.execute(command, env={**os.environ, "COLOUR": "red"}, stdout=out, stderr=err, index=4) == 3
    assert (out.getvalue(), err.getvalue()) == ("[4]<stdout>:out red\n", "[4]<stderr>:err\n")
    out = io.StringIO()
    assert safe_shell_exec.execute("echo plain; kill -9 $$", stdout=out) == 137 and out.getvalue() == "plain\n"


@pytest.mark.parametrize("ended_by", ["itself", "an event", "an event, late"])
def test_what_a_shell_command_started_ends_with_it(tmp_path, monkeypatch, ended_by):
    monkeypatch.setattr(safe_shell_exec, "GRACEFUL_TERMINATION_TIME_S", 1)
    event, results = threading.Event(), []
    command = {
        "itself": "sleep 600 & exit 0",
        "an event": "sleep 600 & sleep 600",
        "an event, late": "trap '' TERM; sleep 600 & while :; do sleep 600; done",
    }[ended_by]
    variables = {**os.environ, "HORA_TEST_MARK": str(tmp_path)}
    thread = threading.Thread(
        target=lambda: results.append(safe_shell_exec.execute(command, env=variables, events=[event]))
    )
    thread.start()
    if ended_by != "itself":
        wait_until(lambda: len(marked(tmp_path)) >= 2, "the command has started another")
        event.set()
    thread.join(60)
    assert results == [{"itself": 0, "an event": 143, "an event, late": 137}[ended_by]]
    wait_until(lambda: not marked(tmp_path), "all of its processes end")


def test_those_of_ray():
    ray = pytest.importorskip("ray", reason="Ray is not installed: scripts/ci.d/test-frameworks ray")
    from horovod.ray import RayExecutor, utils
    from horovod.ray.runner import Coordinator

    coordinator = Coordinator(settings=None)
    for rank, node in enumerate(("n1", "n2", "n1")):
        coordinator.register("machine-of-" + node, node, rank)
    places = coordinator.finalize_registration()
    numbers = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert {rank: [int(place[f"HOROVOD_{name}"]) for name in numbers] for rank, place in places.items()} == {
        0: [0, 3, 0, 2, 0, 2],
        1: [1, 3, 0, 1, 1, 2],
        2: [2, 3, 1, 2, 0, 1],
    }
    assert coordinator.hostnames == {"machine-of-n1": [0, 2], "machine-of-n2": [1]}
    coordinator.register("machine-of-n1", "n1", 5)
    with pytest.raises(ValueError, match="the ranks are"):
        coordinator.finalize_registration()
    assert utils.nics_to_env_var(["eth0", "eth1"]) == {
        "HOROVOD_GLOO_IFACE": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0,eth1",
    }
    settings = RayExecutor.create_settings(nics={"eth1", "eth0"})
    assert utils.detect_nics(settings, all_host_names=["a"], node_workers=[]) == ["eth0", "eth1"]
    assert utils.nics_to_env_var(utils.detect_nics(RayExecutor.create_settings())) == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "get", lambda references: [reference + 1 for reference in references])
        assert utils.map_blocking(lambda each: each * 10, [1, 2]) == [11, 21]


RUNNER = """
import sys
from sparkdl import HorovodRunner, log_to_driver

def train():
    print("printed")
    log_to_driver("logged")

HorovodRunner(np=-1, driver_log_verbosity=sys.argv[1]).run(train)
"""


@pytest.mark.parametrize("verbosity", ["all", "log_callback_only"])
def test_the_driver_prints_what_ranks_print_whatever_its_verbosity(verbosity):
    done = run_command([sys.executable, "-c", RUNNER, verbosity], timeout=120)
    assert done.code == 0 and "printed" in done.out and "logged" in done.out, str(done)


def test_another_verbosity_is_refused():
    from sparkdl import HorovodRunner

    with pytest.raises(ValueError, match="driver_log_verbosity='some': expected 'all' or 'log_callback_only'"):
        HorovodRunner(np=-1, driver_log_verbosity="some")


MISSING = [
    *(f"horovod.runner.{name}" for name in ("common.util.settings", "common.util.hosts", "common.util.network")),
    *(f"horovod.runner.{name}" for name in ("driver", "task", "mpi_run", "gloo_run")),
]


@pytest.mark.parametrize("module", MISSING)
def test_what_is_not_there(module):
    """As docs/reference/differences.md says. Names of frameworks, without importing those."""
    with pytest.raises(ModuleNotFoundError, match=module.rpartition(".")[2]):
        importlib.import_module(module)
    assert "_alltoall_grad" not in (job.PACKAGES / "horovod" / "tensorflow" / "mpi_ops.py").read_text()


TENSORFLOW = """
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow import mpi_ops
from horovod.tensorflow import util
from sparkdl.horovod.tensorflow.keras import LogCallback

hvd.init()
assert float(mpi_ops._allreduce(tf.constant(3.0), postscale_factor=0.5)) == 1.5
assert util._executing_eagerly() and util._cache(lambda: 3)() == 3
assert int(util._make_subgraph(lambda x: x + 1)(tf.constant(1))) == 2
variables = [tf.Variable(1.0), tf.Variable(2.0)]
refs = util.vars_to_refs(variables)
hash(refs)
assert all(a is b for a, b in zip(util.refs_to_vars(refs), variables))
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(tf.ones((4, 2)), tf.ones((4, 1)), batch_size=2, verbose=0, callbacks=[LogCallback(per_batch_log=True)])
"""


def test_those_of_tensorflow():
    done = run_command([needed_python("tensorflow"), "-c", TENSORFLOW], timeout=240, **VARIABLES)
    assert done.code == 0, str(done)
    assert "epoch 0 begins" in done.out and "epoch 0, batch 1: loss:" in done.out and "epoch 0 ends: loss:" in done.out
