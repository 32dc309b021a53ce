# SPDX-License-Identifier: Apache-2.0
"""Parts that need no job: groups, arguments, elastic loop, data loaders, names."""

import ast
import inspect
import re
import sys
import threading
import warnings

import pytest

from support import job

sys.path.insert(0, str(job.PACKAGES))

import horovod.common.basics
import horovod.common.elastic
import horovod.common.exceptions
import horovod.common.util
from hora import collective_docs, elastic, exceptions, grouping, names, operations
from hora.exceptions import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    TensorMismatchError,
)
from horovod.common.util import check_num_rank_power_of_2, split_list
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


def test_split_list():
    assert split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]
    assert split_list([1, 2], 5) == [[1], [2]]
    assert split_list([], 3) == []
    for count in range(1, 20):
        for parts in range(1, 8):
            lists = split_list(range(count), parts)
            assert [item for each in lists for item in each] == list(range(count))
            assert max(map(len, lists)) - min(map(len, lists)) <= 1
            assert len(lists) == min(parts, count)


def test_groups_argument():
    assert grouping.check_groups(None, 0) is None
    assert grouping.check_groups(3, 0) == 3
    assert grouping.check_groups([(1, 2)], 0) == [[1, 2]]
    with pytest.deprecated_call():
        assert grouping.check_groups(None, 4) == 4
    for groups, number in ((0, 0), (-1, 0), ("x", 0), ([1], 0), (True, 0), (2, 2)):
        with pytest.raises(ValueError):
            grouping.check_groups(groups, number)


def test_predivide():
    assert grouping.check_predivide(1.0, 1, 0) == (1.0, 1.0)
    assert grouping.check_predivide(4.0, 0, 0) == (0.25, 4.0)
    with pytest.raises(ValueError):
        grouping.check_predivide(2.0, 1, 0)


def test_average_argument():
    assert operations.choose_op(None, None) == 0
    assert operations.choose_op(3, None) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert operations.choose_op(None, True) == 0
        assert operations.choose_op(None, False) == 1
    with pytest.raises(ValueError):
        operations.choose_op(1, True)


def test_splits_argument():
    assert operations.numeric_splits(None) is None
    assert operations.numeric_splits((1, 2)) == [1, 2]
    for wrong in ([0.5], [[1]]):
        with pytest.raises(ValueError):
            operations.numeric_splits(wrong)


def test_power_of_two():
    assert [n for n in range(20) if check_num_rank_power_of_2(n)] == [1, 2, 4, 8, 16]


def test_made_up_names_are_counted_for_each_set_and_kind():
    names.forget_all()
    name = names.operation_name
    assert [
        name("allreduce", None, 0),
        name("allreduce", None, 1),
        name("allgather", None, 0),
        name("allreduce", None, 0),
        name("allreduce", "given", 0),
    ] == ["allreduce.noname.0", "allreduce.noname.0", "allgather.noname.0", "allreduce.noname.1", "allreduce.given"]
    names.forget(0)
    assert name("allreduce", None, 0) == "allreduce.noname.0"
    assert name("allreduce", None, 1) == "allreduce.noname.1"


def test_queries_as_one_object():
    import hora.basics

    basics = horovod.common.basics.HorovodBasics(__file__, "mpi_lib")
    assert basics.rank is hora.basics.rank and basics.init is hora.basics.init
    assert [basics.horovod_reduce_op_average(), basics.horovod_reduce_op_sum(), basics.horovod_reduce_op_product()] == [
        0,
        1,
        5,
    ]
    assert basics.is_initialized() is False


def test_questions_of_integrations():
    assert horovod.common.util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH") is None
    assert horovod.common.util.gpu_available("no such framework") is False
    assert horovod.common.util.extension_available("json")
    assert not horovod.common.util.extension_available("no_such_framework")


def test_version_of_nccl(monkeypatch):
    import hora.basics

    monkeypatch.setattr(hora.basics, "_built", lambda backend: True)
    for version, number in (("2.28.9", 22809), ("2.7", 20700), ("", 0)):
        monkeypatch.setattr(
            hora.basics,
            "describe",
            lambda: {"backends": [{"id": "shm", "version": ""}, {"id": "nccl", "version": version}]},
        )
        assert hora.basics.nccl_built() == number
    monkeypatch.setattr(hora.basics, "_built", lambda backend: False)
    assert hora.basics.nccl_built() == 0


def test_version_mismatch_error():
    error = horovod.common.exceptions.HorovodVersionMismatchError("torch", "1.0", "2.0")
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ("torch", "1.0", "2.0")


def test_errors_within_the_text_of_a_framework():
    found = exceptions.from_text("UnknownError: node 5: hora.TensorMismatchError: shapes\nline 2")
    assert type(found) is TensorMismatchError and str(found) == "shapes"
    assert type(exceptions.from_text("HorovodInternalError: lost")) is HorovodInternalError
    assert exceptions.from_text("out of memory") is None


# --- the elastic loop, with ranks that are imagined ----------------------------------------------


def test_state_of_ones_own():
    """A State that says how it is saved: commit() saves, then looks for changes of hosts."""
    calls = []

    class Mine(horovod.common.elastic.State):
        def save(self):
            calls.append("save")

        def restore(self):
            calls.append("restore")

        def sync(self):
            calls.append("sync")

        def reset(self):
            calls.append("reset")

    state = Mine(lambda obj: obj, lambda: 0)
    state.register_reset_callbacks([lambda: calls.append("callback")])
    state.commit()
    state.on_reset()
    assert calls == ["save", "reset", "callback"]
    lost = iter([HorovodInternalError("peer"), None])

    def train(state):
        error = next(lost)
        if error is not None:
            raise error
        return "done"

    calls.clear()
    assert horovod.common.elastic.run_fn(train, lambda: calls.append("meet"))(state) == "done"
    assert calls == ["sync", "restore", "meet", "reset", "callback", "sync"]


def make_state(**values):
    return elastic.ObjectState(lambda obj: obj, lambda: 0, **values)


def run_with(func, resets, **values):
    return elastic.run_fn(func, lambda: resets.append(1))(make_state(**values))


def test_loop_restores_after_a_lost_peer():
    seen, resets = [], []

    def train(state):
        seen.append((state.step, list(state.items)))
        state.step += 1
        state.items.append(state.step)
        if len(seen) == 1:
            state.save()
            state.items.append("lost")
            raise HorovodInternalError("peer")
        return "done"

    assert run_with(train, resets, step=0, items=[]) == "done"
    assert seen == [(0, []), (1, [1])] and resets == [1]


def test_loop_keeps_the_state_when_hosts_changed():
    seen, resets, called = [], [], []

    def train(state):
        state.register_reset_callbacks([lambda: called.append(state.step)])
        seen.append(state.step)
        state.step += 1
        if len(seen) < 3:
            state.save()
            raise HostsUpdatedInterrupt(skip_sync=len(seen) == 1)
        return state.step

    assert run_with(train, resets, step=0) == 3
    assert seen == [0, 1, 2] and len(resets) == 2 and called[0] == 1


def test_loop_does_not_retry_mistakes():
    resets = []

    def mismatch(state):
        raise TensorMismatchError("shapes")

    with pytest.raises(TensorMismatchError):
        run_with(mismatch, resets)
    with pytest.raises(ZeroDivisionError):
        run_with(lambda state: 1 / 0, resets)
    assert not resets


def test_loop_translates_errors_of_a_framework():
    calls = []

    def train(state):
        calls.append(1)
        if len(calls) == 1:
            raise OSError("as a framework wraps it")
        return len(calls)

    def translate(error):
        return HorovodInternalError(str(error)) if isinstance(error, OSError) else None

    assert elastic.run_fn(train, lambda: None, translate)(make_state()) == 2


def test_host_changes():
    state = make_state(step=1)
    state.check_host_updates()
    state.on_hosts_updated(10, elastic.HostUpdateResult.removed)
    state.on_hosts_updated(10, elastic.HostUpdateResult.added)  # in the same second
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert not caught.value.skip_sync
    state.check_host_updates()
    state.on_hosts_updated(10, elastic.HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync
    state.on_hosts_updated(11, elastic.HostUpdateResult.added)
    state.on_reset()  # the ranks met meanwhile: the change is old
    state.check_host_updates()


# --- data loaders ----------------------------------------------------------------------------------


class Numbers(BaseDataLoader):
    def __init__(self, count, fail_at=None):
        self.count = count
        self.fail_at = fail_at

    def __len__(self):
        return self.count

    def _iterate(self):
        for number in range(self.count):
            if number == self.fail_at:
                raise OSError("cannot read")
            yield number

    def _process_batch(self, batch):
        return batch * 10


class AheadNumbers(AsyncDataLoaderMixin, Numbers):
    pass


@pytest.mark.parametrize("queue_size", [0, 1, 64])
def test_loaders(queue_size):
    loader = AheadNumbers(async_loader_queue_size=queue_size, count=20)
    for _ in range(2):
        assert list(loader) == [number * 10 for number in range(20)]
    before = threading.active_count()
    for batch in loader:  # left in the middle
        if batch == 50:
            break
    loader.close_async_loader()
    assert threading.active_count() == before
    failing = AheadNumbers(async_loader_queue_size=queue_size, count=5, fail_at=3)
    seen = []
    with pytest.raises(OSError, match="cannot read"):
        for batch in failing:
            seen.append(batch)
    assert seen == [0, 10, 20]


@collective_docs.documented
def grouped_allreduce_async_(tensors, name=None, op=None, process_set=None):
    """Starts to reduce several tensors,
    each into itself."""


def test_the_docstring_of_a_collective_has_its_rules_arguments_and_errors():
    lines = inspect.getdoc(grouped_allreduce_async_).splitlines()
    assert lines[:2] == ["Starts to reduce several tensors,", "each into itself."]
    described = [line.split(":")[0].strip() for line in lines if re.match(r"    \w+: ", line)]
    assert described[:3] == ["name", "op", "process_set"] and "HorovodInternalError" in described
    assert "Raises, here or in synchronize():" in lines
    assert collective_docs.kind_of("grouped_allreduce_async_") == "allreduce"
    assert collective_docs.kind_of("broadcast_") == "broadcast"


FACES = "hora/numpy.py hora/jax.py horovod/torch/handles.py horovod/torch/mpi_ops.py horovod/mxnet/mpi_ops.py "
FACES += "horovod/tensorflow/mpi_ops.py horovod/tensorflow/reductions.py"


@pytest.mark.parametrize("file", FACES.split())
def test_every_collective_of_a_framework_has_the_common_docstring(file):
    functions = [
        each for each in ast.parse((job.PACKAGES / file).read_text()).body if isinstance(each, ast.FunctionDef)
    ]
    collectives = [each for each in functions if collective_docs.kind_of(each.name) in collective_docs.RULES]
    assert len(collectives) > 3
    for function in collectives:
        assert "documented" in [getattr(decorator, "id", "") for decorator in function.decorator_list], function.name
        arguments = {argument.arg for argument in function.args.args} - {"tensor", "tensors"}
        assert arguments <= set(collective_docs.ARGUMENTS), function.name
