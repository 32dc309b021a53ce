# SPDX-License-Identifier: Apache-2.0
"""The ranges that a tool of NVTX receives. The headers of NVTX, which are in libhora.so, load the tool that
NVTX_INJECTION64_PATH names: tests/support/gpu_double/nvtx_double.cpp."""

import ctypes
import os
import pathlib
import tempfile

import numpy as np

import hora.numpy as hvd


def ranges():
    tool = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
    tool.hora_double_ranges.restype = ctypes.c_char_p
    return tool.hora_double_ranges().decode().splitlines()


def ranges_of(function):
    """Those that end while the function runs, without the operations that NumPy's interface makes itself."""
    before = len(ranges())
    function()
    return ranges()[before:]


IS_OFF = os.environ.get("HOROVOD_DISABLE_NVTX_RANGES") == "1"


def expect(function, *names):
    found = ranges_of(function)
    assert found == ([] if IS_OFF else [f"Hora: {name}" for name in names]), found


def check_every_collective():
    rows = np.ones((hvd.size(), 2), np.float32)
    bytes_of_rows = 8 * hvd.size()
    expect(lambda: hvd.allreduce(rows, name="sum"), f"HorovodAllreduce {bytes_of_rows}")
    expect(lambda: hvd.allgather(rows, name="all"), f"HorovodAllgather {bytes_of_rows}")
    expect(lambda: hvd.broadcast(rows, 0, name="root"), f"HorovodBroadcast {bytes_of_rows}")
    expect(lambda: hvd.alltoall(rows, name="turn"), f"HorovodAlltoall {bytes_of_rows}")
    expect(lambda: hvd.reducescatter(rows, name="part"), f"HorovodReducescatter {bytes_of_rows}")
    expect(lambda: hvd.grouped_allreduce([rows, rows], name="both"), *[f"HorovodGroupedAllreduce {bytes_of_rows}"] * 2)
    expect(hvd.barrier)  # no tensor, no range


def check_operations_of_the_fast_path_end_their_ranges():
    tensor = np.ones(4, np.float32)
    for _ in range(200):
        expect(lambda: hvd.allreduce(tensor, name="again"), "HorovodAllreduce 16")


def check_a_timeline_brings_the_names_of_tensors():
    with tempfile.TemporaryDirectory() as folder:
        hvd.start_timeline(str(pathlib.Path(folder) / "timeline.json"))
        # Rank 0 writes the timeline of all.
        name = "HorovodAllreduce allreduce.grad.3" if hvd.rank() == 0 else "HorovodAllreduce"
        expect(lambda: hvd.allreduce(np.ones(2), name="grad.3"), f"{name} 16")
        hvd.stop_timeline()
    expect(lambda: hvd.allreduce(np.ones(2), name="grad.3"), "HorovodAllreduce 16")
