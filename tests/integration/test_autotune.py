# SPDX-License-Identifier: Apache-2.0
"""--autotune: parameters change while a job runs, on all ranks at once, and the log names the best ones."""

import csv
import sys

import pytest

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

HEADER = [
    "hierarchical_allreduce",
    "hierarchical_allgather",
    "torus_allreduce",
    "cache_enabled",
    "cycle_time_ms",
    "tensor_fusion_threshold",
    "score",
]

PROGRAM = """\
import numpy as np
import hora.numpy as hvd
hvd.init()
sizes = [1, 500, 3000, 5000, 40000, 40000, 70000]
for step in range(90):
    tensors = [np.full(size, hvd.rank() + step, dtype=np.float64) for size in sizes]
    handles = [hvd.allreduce_async(tensor, name=f'grad/{i}', op=hvd.Sum) for i, tensor in enumerate(tensors)]
    for handle in handles:
        assert (hvd.synchronize(handle) == sum(range(hvd.size())) + step * hvd.size()).all()
print('RIGHT', flush=True)
"""


@pytest.fixture
def run(horarun, tmp_path):
    def start(*options):
        (tmp_path / "program.py").write_text(PROGRAM)
        done = horarun.run(
            "-np",
            4,
            "--autotune",
            "--autotune-log-file",
            "tune.csv",
            "--autotune-warmup-samples",
            1,
            "--autotune-steps-per-sample",
            1,
            "--autotune-bayes-opt-max-samples",
            8,
            *options,
            "--wdir",
            tmp_path,
            sys.executable,
            "program.py",
        ).expect(0)
        assert done.text.count("RIGHT") == 4, done
        with open(tmp_path / "tune.csv", newline="") as file:
            return list(csv.DictReader(file))

    return start


def test_the_log_lists_what_was_tried_and_the_best_last(run):
    rows = run()
    # The last two samples are a duel, unless nothing has beaten the defaults, which are the first then.
    samples = 6 if len(rows) == 6 + 1 and rows[-1] == rows[0] else 8
    assert len(rows) == samples + 1 and list(rows[0])[:7] == HEADER, rows
    assert len({row["tensor_fusion_threshold"] for row in rows}) > 2, rows
    assert all(float(row["score"]) > 0 for row in rows)
    assert rows[0]["tensor_fusion_threshold"] == "128" and rows[0]["cycle_time_ms"] == "0", rows  # the defaults first
    assert rows[-1] in rows[:-1], rows


def test_what_the_user_gives_stays(run):
    rows = run("--fusion-threshold-mb", 4, "--cycle-time-ms", 0.5)
    assert {(row["tensor_fusion_threshold"], row["cycle_time_ms"]) for row in rows} == {("4", "0.5")}, rows
    assert len({(row["shm_small_bytes"], row["shm_part_bytes"]) for row in rows}) > 2, rows


def test_a_log_on_a_full_disk_is_reported_and_the_job_goes_on(horarun, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = horarun.run(
        *("-np", 2, "--autotune", "--autotune-log-file", "/dev/full", "--wdir", tmp_path, sys.executable, "program.py")
    ).expect(0)
    assert done.text.count("RIGHT") == 2
    assert "HOROVOD_AUTOTUNE_LOG=/dev/full: No space left on device" in done.text + done.messages, done
