# SPDX-License-Identifier: Apache-2.0
"""Variables of Horovod's runtime: each has its effect, or rank 0 says once that it has none."""

import os
import pathlib
import re

import pytest

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

PYTHON = "/usr/bin/python3"
REPOSITORY = pathlib.Path(__file__).parents[2]

# Those that Horovod 0.28 reads when it runs.
OF_HOROVOD = [
    "HOROVOD_ADASUM_MPI_CHUNK_SIZE",
    "HOROVOD_AUTOTUNE",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
    "HOROVOD_AUTOTUNE_LOG",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
    "HOROVOD_BATCH_D2D_MEMCOPIES",
    "HOROVOD_CACHE_CAPACITY",
    "HOROVOD_CCL_CACHE",
    "HOROVOD_CONTROLLER",
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_CYCLE_TIME",
    "HOROVOD_DISABLE_GROUP_FUSION",
    "HOROVOD_DISABLE_NVTX_RANGES",
    "HOROVOD_DYNAMIC_PROCESS_SETS",
    "HOROVOD_ELASTIC",
    "HOROVOD_ELASTIC_TIMEOUT",
    "HOROVOD_ENABLE_ASYNC_COMPLETION",
    "HOROVOD_ENABLE_XLA_OPS",
    "HOROVOD_FUSION_THRESHOLD",
    "HOROVOD_GLOO_IFACE",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_GLOO_TIMEOUT_SECONDS",
    "HOROVOD_HIERARCHICAL_ALLGATHER",
    "HOROVOD_HIERARCHICAL_ALLREDUCE",
    "HOROVOD_HOSTNAME",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_LOG_HIDE_TIME",
    "HOROVOD_LOG_LEVEL",
    "HOROVOD_MPI_THREADS_DISABLE",
    "HOROVOD_NUM_NCCL_STREAMS",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_SPARK_START_TIMEOUT",
    "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
    "HOROVOD_STALL_CHECK_DISABLE",
    "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "HOROVOD_START_TIMEOUT",
    "HOROVOD_THREAD_AFFINITY",
    "HOROVOD_TIMELINE",
    "HOROVOD_TIMELINE_MARK_CYCLES",
    "HOROVOD_TORUS_ALLREDUCE",
    "_HOROVOD_SECRET_KEY",
]

# True by default here.
NEEDS_NO_READER = {"HOROVOD_DYNAMIC_PROCESS_SETS"}

PLACE = """\
import os
import hora.numpy as hvd
hvd.init()
for thread in os.listdir('/proc/self/task'):
    try:
        with open(f'/proc/self/task/{thread}/comm') as file:
            name = file.read().strip()
        print(name, *sorted(os.sched_getaffinity(int(thread))), flush=True)
    except OSError:
        pass  # one that only init() needed
hvd.barrier()  # the end of one rank is that of the other's threads
"""


def sources():
    for folder in ("launcher", "collectives", "rendezvous"):
        for path in (REPOSITORY / folder).rglob("*"):
            if path.suffix in (".cpp", ".h", ".py"):
                yield path.read_text()


def test_every_variable_of_horovod_is_read_and_documented():
    text = "\n".join(sources())
    page = (REPOSITORY / "docs/reference/environment.md").read_text()
    documented = set(re.findall(r"`([A-Z0-9_]+)`", page))
    for name in OF_HOROVOD:
        # Short names are built from parts.
        quoted = f'"{name}"' in text or f'"{name.removeprefix("HOROVOD_")}"' in text
        assert quoted or name in NEEDS_NO_READER, f"{name} is not read, and no message says that it is not used"
        assert name in documented, f"docs/reference/environment.md does not list {name}"
        denied = re.search(rf"^\|.*`{name}`.*\| not read", page, re.M)
        assert not (quoted and denied), f"docs/reference/environment.md says that {name} is not read"


def test_settings_without_effect_are_reported_once_by_rank_0(horarun):
    unused = {
        "HOROVOD_ADASUM_MPI_CHUNK_SIZE": "65536",
        "HOROVOD_BATCH_D2D_MEMCOPIES": "0",
        "HOROVOD_CCL_CACHE": "1",
        "HOROVOD_ENABLE_ASYNC_COMPLETION": "1",
        "HOROVOD_ENABLE_XLA_OPS": "1",
    }
    done = horarun.run("-np", 2, "--torus-allreduce", PYTHON, "-c", PLACE, env=unused).expect(0)
    reported = [line for line in done.messages.splitlines() if "not used here" in line]
    assert len(reported) == 1 and reported[0].startswith("[0]<stderr>:"), done
    for name in [*unused, "HOROVOD_TORUS_ALLREDUCE"]:
        assert f"{name}=" in reported[0], name


def test_an_invalid_log_level_is_reported_once_by_rank_0(horarun):
    done = horarun.run("-np", 2, PYTHON, "-c", PLACE, env={"HOROVOD_LOG_LEVEL": "loud"}).expect(0)
    lines = [line for line in done.messages.splitlines() if "HOROVOD_LOG_LEVEL=loud" in line]
    assert len(lines) == 1 and lines[0].startswith("[0]<stderr>:") and "expected trace, debug" in lines[0], done


def test_nothing_is_reported_for_unset_variables(horarun):
    done = horarun.run("-np", 2, "--no-torus-allreduce", PYTHON, "-c", PLACE, env={"HOROVOD_CCL_CACHE": "0"}).expect(0)
    assert "not used here" not in done.messages, done


@pytest.mark.parametrize("hidden", [False, True])
def test_messages_of_the_runtime_begin_with_the_time(horarun, hidden):
    options = ["--log-without-timestamp"] if hidden else []
    done = horarun.run("-np", 1, *options, "--torus-allreduce", PYTHON, "-c", PLACE).expect(0)
    line = next(line for line in done.messages.splitlines() if "not used here" in line)
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} "
    assert re.search(r">:" + ("" if hidden else time) + "warn settings: not used here", line), line


def runtime_threads(done):
    """local rank -> the cores of its thread hora-runtime."""
    return {
        rank: line.split()[1:]
        for rank, lines in done.ranks().items()
        for line in lines
        if line.startswith("hora-runtime ")
    }


def test_thread_affinity_pins_the_thread_of_the_runtime(horarun):
    core = str(max(os.sched_getaffinity(0)))
    everywhere = [str(each) for each in sorted(os.sched_getaffinity(0))]
    if len(everywhere) < 2:
        pytest.skip("this machine has one core")
    done = horarun.run("-np", 2, "--thread-affinity", f"{core},0", PYTHON, "-c", PLACE).expect(0)
    assert runtime_threads(done) == {0: [core], 1: ["0"]}, done
    for rank, lines in done.ranks().items():
        assert f"python3 {' '.join(everywhere)}" in lines or any(
            line.split()[1:] == everywhere for line in lines if not line.startswith("hora-runtime")
        ), f"other threads of rank {rank} are pinned, too: {lines}"


def test_an_unavailable_affinity_is_reported_and_ignored(horarun):
    done = horarun.run("-np", 2, "--thread-affinity", "0", PYTHON, "-c", PLACE).expect(0)
    assert runtime_threads(done)[0] == ["0"] and len(runtime_threads(done)[1]) > 1, done
    assert "HOROVOD_THREAD_AFFINITY names 1 of 2 cores" in done.messages, done
    done = horarun.run("-np", 1, "--thread-affinity", "60000", PYTHON, "-c", PLACE).expect(0)
    assert "HOROVOD_THREAD_AFFINITY: core 60000: " in done.messages, done


def test_an_affinity_that_is_not_a_list_of_cores_is_an_error(horarun):
    done = horarun.run("-np", 1, "-x", "HOROVOD_THREAD_AFFINITY=0-3", PYTHON, "-c", PLACE)
    assert done.code != 0, done
    assert "HOROVOD_THREAD_AFFINITY=0-3: expected whole numbers" in done.messages, done


def test_a_backend_that_is_none_is_an_error(horarun):
    done = horarun.run("-np", 2, PYTHON, "-c", PLACE, env={"HORA_BACKENDS": "shm,gluu"})
    assert done.code not in (0, 125), done
    assert "HORA_BACKENDS=shm,gluu: no backend is called 'gluu'; there are " in done.messages, done
