# SPDX-License-Identifier: Apache-2.0
"""hora-perf, which comes with the bundle."""

import contextlib
import ctypes
import errno
import json
import os
import subprocess
from xml.etree import ElementTree

import pytest

OPERATIONS = ["allreduce", "allgather", "broadcast", "reducescatter", "alltoall"]


def rows_of(done):
    return json.loads("".join(done.ranks()[0]))["rows"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_measures_and_checks(horarun, operation):
    done = horarun.run("-np", 3, "hora-perf", operation, "--sizes", "0,4,100K", "--iterations", 3, "--json").expect(0)
    rows = rows_of(done)
    assert len(rows) == 3 and all(row["wrong"] == 0 and row["mean_us"] > 0 for row in rows), done
    assert all(row["best_us"] <= row["median_us"] <= row["p99_us"] for row in rows), done


def test_only_rank_0_speaks(horarun):
    done = horarun.run("-np", 2, "hora-perf", "barrier", "--iterations", 2, "--csv").expect(0)
    assert set(done.ranks()) == {0} and len(done.ranks()[0]) == 2, done


def test_wrong_usage(horarun):
    done = horarun.run("-np", 1, "hora-perf", "--dtype", "float").expect(2)
    assert "expected one of uint8" in done.messages, done


def test_a_plot_of_two_runs(horarun, build, tmp_path):
    for label, options in (("shm", []), ("tcp", [])):
        done = horarun.run(
            "-np",
            2,
            "--no-prefix-output",
            *options,
            "hora-perf",
            "--sizes",
            "4,64K",
            "--iterations",
            3,
            "--csv",
            env={"HORA_BACKENDS": label},
        ).expect(0)
        (tmp_path / f"{label}.csv").write_text(done.text)
    perf = [f"{build}/bin/hora-perf", "plot"]
    subprocess.run(
        [*perf, "-o", tmp_path / "plot.svg", tmp_path / "shm.csv", f"over tcp={tmp_path}/tcp.csv"],
        check=True,
        timeout=60,
    )
    drawn = ElementTree.parse(tmp_path / "plot.svg").getroot()
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"shm", "over tcp", "bus bandwidth, GB/s"} <= set(texts), texts
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 8
    wrong = subprocess.run(
        [*perf, "-o", tmp_path / "x.svg", tmp_path / "plot.svg"], capture_output=True, text=True, timeout=60
    )
    assert wrong.returncode == 2 and "expected the output of hora-perf --csv or --json" in wrong.stderr, wrong
    (tmp_path / "plot.svg").write_text("an earlier one")
    refusing = {
        "LD_PRELOAD": f"{build}/lib/libhora_fail_close.so",
        "HORA_REFUSE": "plot.svg",
        "HORA_REFUSE_AT": "close",
        "HORA_REFUSE_WITH": str(errno.EDQUOT),
    }
    full = subprocess.run(
        [*perf, "-o", tmp_path / "plot.svg", tmp_path / "shm.csv"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **refusing},
    )
    assert full.returncode == 1 and f"writing {tmp_path}/plot.svg: Disk quota exceeded" in full.stderr, full
    assert (tmp_path / "plot.svg").read_text() == "an earlier one" and len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("operation", OPERATIONS)
def test_tensors_in_the_memory_of_a_gpu(horarun, build, operation):
    """The GPU is the double of tests/support/gpu_double, whose memory is the host's; NCCL, too."""
    doubles = os.path.join(build, "tests", "gpu_double")
    if not os.path.exists(os.path.join(doubles, "libnccl.so.2")):
        pytest.skip("built without the double of CUDA and NCCL")
    environment = {"LD_LIBRARY_PATH": doubles, "HORA_BACKENDS": "nccl,shm"}
    command = ["hora-perf", operation, "--device", "gpu", "--sizes", "4,100K", "--iterations", 3, "--json"]
    done = horarun.run("-np", 3, *command, env=environment).expect(0)
    assert json.loads("".join(done.ranks()[0]))["device"] == "gpu", done
    rows = rows_of(done)
    assert len(rows) == 2 and all(row["wrong"] == 0 and row["mean_us"] > 0 for row in rows), done


def test_a_gpu_where_there_is_none(horarun):
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a CUDA driver")
    done = horarun.run("-np", 1, "hora-perf", "--device", "gpu", "--sizes", "4").expect(1)
    assert "--device gpu: this host has no CUDA driver (libcuda.so.1: cannot open" in done.messages, done


def test_hosts_have_it_from_the_bundle(horarun, hosts):
    here = hosts(2)
    done = horarun.run("-H", here.spec(2), "hora-perf", "--sizes", "64K", "--iterations", 3, "--json").expect(0)
    report = json.loads("".join(done.ranks()[0]))
    assert report["hosts"] == 2 and report["rows"][0]["wrong"] == 0, done
