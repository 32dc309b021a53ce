# SPDX-License-Identifier: Apache-2.0
"""Modules and functions beside the public interface, which programs that build on Horovod import."""

import os
import sys
import threading

import pytest

from support import job

sys.path.insert(0, str(job.PACKAGES))

from horovod.common import util
from horovod.runner.common.util import codec, timeout
from horovod.runner.common.util import env as env_util
from horovod.runner.util import threads
from support.frameworks import VARIABLES, needed_python
from support.job import run_command


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
    patient = timeout.Timeout(60, "waiting for {activity}")
    assert not patient.timed_out() and 0 < patient.remaining() <= 60
    patient.check_time_out_for("nothing")
    over = timeout.Timeout(-1, "waiting for {activity}")
    assert over.timed_out() and over.remaining() == 0
    with pytest.raises(timeout.TimeoutException, match="waiting for hosts"):
        over.check_time_out_for("hosts")


TENSORFLOW = """
import tensorflow as tf
from horovod.tensorflow import util
from sparkdl.horovod.tensorflow.keras import LogCallback

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
