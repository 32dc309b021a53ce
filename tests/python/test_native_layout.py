# SPDX-License-Identifier: Apache-2.0
"""The structs that Python packs are those of hora.h: a C program prints them."""

import shutil
import struct
import subprocess
import sys

import pytest

from support import job

sys.path.insert(0, str(job.PACKAGES))

from hora import _calls, _native, _requests, dtypes, exceptions

FIELDS = [
    "struct_size",
    "operation",
    "name",
    "input",
    "output",
    "process_set",
    "reduce_op",
    "root_rank",
    "priority",
    "prescale",
    "postscale",
    "splits",
    "split_count",
    "stream",
]


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("layout")
    names = [
        "HORA_OK",
        "HORA_IN_PROGRESS",
        "HORA_INVALID_ARGUMENT",
        "HORA_NOT_INITIALIZED",
        "HORA_MISMATCH",
        "HORA_ABORTED",
        "HORA_TIMED_OUT",
        "HORA_UNSUPPORTED",
        "HORA_INTERNAL",
        "HORA_ALLREDUCE",
        "HORA_ALLGATHER",
        "HORA_BROADCAST",
        "HORA_JOIN",
        "HORA_ALLTOALL",
        "HORA_BARRIER",
        "HORA_REDUCESCATTER",
        "HORA_AVERAGE",
        "HORA_SUM",
        "HORA_ADASUM",
        "HORA_MIN",
        "HORA_MAX",
        "HORA_PRODUCT",
        "HORA_CPU_DEVICE",
        "HORA_GLOBAL_PROCESS_SET",
        "HORA_ABI_VERSION",
    ]
    names += ["HORA_" + name.upper() for name in dtypes.CODE_OF_NAME]
    lines = [f'printf("{name} %d\\n", (int){name});' for name in names]
    lines += [f'printf("request.{field} %zu\\n", offsetof(hora_request, {field}));' for field in FIELDS]
    lines += [
        f'printf("sizeof.{name} %zu\\n", sizeof({name}));' for name in ("hora_request", "hora_tensor", "hora_options")
    ]
    source = folder / "layout.c"
    source.write_text(
        '#include <stdio.h>\n#include "hora/hora.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0; }\n"
    )
    program = folder / "layout"
    subprocess.run([compiler, "-I", job.ROOT / "collectives" / "include", source, "-o", program], check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in map(str.split, output.splitlines())}


def test_constants(facts):
    for name in (
        "OK",
        "IN_PROGRESS",
        "INVALID_ARGUMENT",
        "NOT_INITIALIZED",
        "MISMATCH",
        "ABORTED",
        "TIMED_OUT",
        "UNSUPPORTED",
        "INTERNAL",
        "ALLREDUCE",
        "ALLGATHER",
        "BROADCAST",
        "JOIN",
        "ALLTOALL",
        "BARRIER",
        "REDUCESCATTER",
        "AVERAGE",
        "SUM",
        "ADASUM",
        "MIN",
        "MAX",
        "PRODUCT",
        "CPU_DEVICE",
        "GLOBAL_PROCESS_SET",
        "ABI_VERSION",
    ):
        assert getattr(_native, name) == facts["HORA_" + name], name
    for name, code in dtypes.CODE_OF_NAME.items():
        assert code == facts["HORA_" + name.upper()], name


def test_sizes(facts):
    import ctypes

    assert struct.calcsize(_requests._REQUEST.format) == facts["sizeof.hora_request"]
    assert ctypes.sizeof(_native.Tensor) == facts["sizeof.hora_tensor"]
    assert ctypes.sizeof(_native.Options) == facts["sizeof.hora_options"]


def packed(request, monkeypatch):
    """The bytes that submit() hands over for a request, and what its pointers point to."""
    import ctypes

    seen = {}

    class Library:
        @staticmethod
        def run(address, timeout_ms, handle):
            Library.submit(address, 1, handle)
            ctypes.cast(handle, ctypes.POINTER(ctypes.c_int64))[0] = 0
            return 0

        @staticmethod
        def submit(address, count, handles):
            seen["bytes"] = ctypes.string_at(address, _requests._REQUEST_SIZE * count)
            fields = _requests._REQUEST.unpack(seen["bytes"][: _requests._REQUEST_SIZE])
            seen["name"] = ctypes.string_at(fields[2])
            shape = (ctypes.c_int64 * fields[5]).from_address(fields[4]) if fields[5] else []
            seen["shape"] = list(shape)
            ctypes.cast(handles, ctypes.POINTER(ctypes.c_int64))[0] = 77
            return 0

    monkeypatch.setattr(_native, "_library", Library)
    return seen


@pytest.mark.parametrize("ndim", [0, 1, 3, 8, 9, 20])
@pytest.mark.parametrize("name", ["t", "ünï", "n" * 3000])
def test_both_ways_to_submit_pack_alike(facts, monkeypatch, ndim, name):
    shape = tuple(range(1, ndim + 1))
    seen = packed(None, monkeypatch)
    fields = (_native.BROADCAST, name, 111, shape, dtypes.INT16, 3, 222, 4, 5, 6, 8, 0.5, 2.5, 999)
    assert _calls.submit_one(fields, None) == 77
    first = dict(seen)
    assert _calls.submit([_requests.Request(*fields)], None) == (77,)
    at = {field: facts["request." + field] for field in FIELDS}
    for field in ("struct_size", "operation", "process_set", "reduce_op", "root_rank", "priority"):
        values = [struct.unpack_from("i", each["bytes"], at[field])[0] for each in (first, seen)]
        assert values[0] == values[1], field
    assert struct.unpack_from("i", seen["bytes"], at["struct_size"])[0] == facts["sizeof.hora_request"]
    assert struct.unpack_from("i", seen["bytes"], at["root_rank"])[0] == 6
    assert struct.unpack_from("d", seen["bytes"], at["prescale"])[0] == 0.5
    assert struct.unpack_from("d", first["bytes"], at["postscale"])[0] == 2.5
    assert struct.unpack_from("P", first["bytes"], at["stream"])[0] == 999
    assert struct.unpack_from("P", seen["bytes"], at["output"])[0] == 222
    assert first["shape"] == seen["shape"] == list(shape)
    assert first["name"] == seen["name"] == name.encode()


@pytest.mark.parametrize("ndim", [0, 1, 3, 8, 9])
@pytest.mark.parametrize("name", ["t", "ünï", "n" * 3000])
def test_blocking_calls_pack_alike_also_when_they_come_again(monkeypatch, ndim, name):
    shape = tuple(range(1, ndim + 1))
    seen = packed(None, monkeypatch)
    for call in range(4):  # from the third on, only what differs is written
        address, output, how = 111 + call, 222 + call, (4, 5, 6, 0, 0.5 + call, 2.5 + call)
        _calls.run_one(_native.BROADCAST, name, call == 3, address, shape, dtypes.INT16, output, how, None)
        ours, ours_packed = dict(seen), _requests._REQUEST.unpack(seen["bytes"])
        fields = (address, shape, dtypes.INT16, _native.CPU_DEVICE, output, *how)
        _calls.submit([_requests.Request(_native.BROADCAST, name, *fields)], None)
        places = {2, 4, 10, 23}  # the addresses of name, shapes and splits
        differing = [
            at
            for at, pair in enumerate(zip(ours_packed, _requests._REQUEST.unpack(seen["bytes"])))
            if len(set(pair)) > 1
        ]
        assert set(differing) <= places
        assert ours["shape"] == seen["shape"] == list(shape)
        assert ours["name"] == seen["name"] == name.encode()


def test_blocking_calls_name_what_is_not_a_number(monkeypatch):
    packed(None, monkeypatch)
    for _ in range(3):
        _calls.run_one(_native.ALLREDUCE, "n", False, 1, (2,), 3, 4, (0, 1, 0, 0, 1.0, 1.0), None)
    with pytest.raises(TypeError, match="prescale_factor='a', expected a number"):
        _calls.run_one(_native.ALLREDUCE, "n", False, 1, (2,), 3, 4, (0, 1, 0, 0, "a", 1.0), None)
    for wrong in ("sum", ["sum"]):
        with pytest.raises(TypeError, match=r"op=.*sum.*, expected an integer"):
            _calls.run_one(_native.ALLREDUCE, "n", False, 1, (2,), 3, 4, (0, wrong, 0, 0, 1.0, 1.0), None)

    class Root(list):
        def __index__(self):
            return 1

    for _ in range(3):
        _calls.run_one(_native.BROADCAST, "n", False, 1, (2,), 3, 4, (0, 0, Root(), 0, 1.0, 1.0), None)


def test_requests_that_do_not_come_again_are_not_kept(monkeypatch):
    packed(None, monkeypatch)
    for step in range(3 * _calls._MOST_REPEATED):
        _calls.run_one(_native.ALLREDUCE, f"step {step}", False, 1, (2,), 3, 4, (0, 1, 0, 0, 1.0, 1.0), None)
        assert len(_calls._repeated) <= _calls._MOST_REPEATED
    assert not any(_calls._repeated.values())


def test_every_status_is_an_error_of_its_own():
    expected = {
        _native.INVALID_ARGUMENT: ValueError,
        _native.MISMATCH: exceptions.TensorMismatchError,
        _native.NOT_INITIALIZED: exceptions.NotInitializedError,
        _native.UNSUPPORTED: exceptions.UnsupportedError,
        _native.TIMED_OUT: exceptions.CollectiveTimeoutError,
        _native.ABORTED: exceptions.HorovodInternalError,
        _native.INTERNAL: exceptions.HorovodInternalError,
    }
    for status, kind in expected.items():
        error = _native.failure(status, "the text")
        assert type(error) is kind and str(error).endswith("the text")
        if status != _native.INVALID_ARGUMENT:
            assert isinstance(error, exceptions.HorovodInternalError)
    assert issubclass(exceptions.TensorMismatchError, ValueError)
    assert not exceptions.TensorMismatchError("x").recoverable
    assert exceptions.HorovodInternalError("x").recoverable
