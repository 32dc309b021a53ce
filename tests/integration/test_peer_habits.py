# SPDX-License-Identifier: Apache-2.0
"""Options that users of mpirun, Hydra, torchrun, DeepSpeed, accelerate and srun type work as they do there."""

import json
import os
import subprocess

import pytest

PYTHON = "/usr/bin/python3"
PLACE = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK"'


def test_variables_for_the_ranks(horarun, tmp_path):
    file = tmp_path / "job.env"
    file.write_text("# of the job\nFROM_FILE=one two\nBOTH=file\nPASSED\n")
    options = ("-x", "GIVEN=a=b", "--env", "BOTH=option", "--env-file", file)
    done = horarun.run(
        *("-np", 2, *options, "sh", "-c", 'echo "$GIVEN|$BOTH|$FROM_FILE|$PASSED"'), env={"PASSED": "here"}
    ).expect(0)
    assert done.ranks() == {rank: ["a=b|option|one two|here"] for rank in (0, 1)}


def test_variables_that_would_stay_on_this_machine(horarun, hosts):
    hosts(2)
    show = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES|$DISPLAY|$EXTRA"')
    here = {"CUDA_VISIBLE_DEVICES": "3,1", "DISPLAY": ":7"}
    plain = horarun.run("-H", "node1,node2", *show, env=here).expect(0)
    assert plain.ranks() == {0: ["||"], 1: ["||"]}
    passed = horarun.run("-H", "node1,node2", "-x", "CUDA_VISIBLE_DEVICES", "-x", "EXTRA=1", *show, env=here).expect(0)
    assert passed.ranks() == {0: ["3,1||1"], 1: ["3,1||1"]}


def test_the_line_of_mpirun_in_horovods_documentation(horarun, hosts):
    hosts(2)
    options = ("-np", 4, "-H", "node1:2,node2:2", "-bind-to", "none", "-map-by", "slot")
    variables = ("-x", "NCCL_DEBUG=INFO", "-x", "LD_LIBRARY_PATH", "-x", "PATH")
    show = ("sh", "-c", 'echo "$RANK $HOROVOD_HOSTNAME $NCCL_DEBUG $LD_LIBRARY_PATH"')
    done = horarun.run(*options, *variables, *show, env={"LD_LIBRARY_PATH": "/of/this"}).expect(0)
    for rank, lines in done.ranks().items():
        place, _, path = lines[0].rpartition(" ")
        assert place == f"{rank} node{rank // 2 + 1} INFO" and path.endswith("/of/this"), done
    assert len(done.ranks()) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mpi=pmix",), "--mpi takes no value, found 'pmix'; horarun calls this --pmi pmix"),
        (("-map-by", "ppr:2:node"), "found 'ppr:2:node'; horarun calls this -N 2"),
        (("--bind-to", "l3cache"), "found 'l3cache'; horarun calls this --bind l3"),
    ],
)
def test_another_value(horarun, options, message):
    assert horarun.run("-np", 2, *options, "true").expect(2).messages.strip().endswith(message)


def test_a_variable_that_is_not_set_is_reported(horarun):
    done = horarun.run("-np", 1, "-x", "NOT_SET_ANYWHERE", "true").expect(0)
    assert "warning: -x: NOT_SET_ANYWHERE is not set here" in done.messages


def test_a_module(horarun, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text("import sys\nprint(__name__, sys.argv[1:], __package__)\n")
    done = horarun.run("-np", 2, "-m", "package.train", "--lr", "3", cwd=str(tmp_path)).expect(0)
    assert done.ranks() == {rank: ["__main__ ['--lr', '3'] package"] for rank in (0, 1)}


def test_ranks_by_host_as_torchrun_and_mpirun_count_them(horarun, hosts):
    hosts(3)
    everywhere = "node1:4,node2:4,node3:4"
    done = horarun.run("--nnodes", 2, "--nproc_per_node", 2, "-H", everywhere, "sh", "-c", PLACE).expect(0)
    assert done.ranks() == {0: ["0/4 0/2 0"], 1: ["1/4 1/2 0"], 2: ["2/4 0/2 1"], 3: ["3/4 1/2 1"]}
    for option in ("-N", "-ppn"):
        done = horarun.run("-np", 3, option, 1, "-H", everywhere, "sh", "-c", PLACE).expect(0)
        assert done.ranks() == {rank: [f"{rank}/3 0/1 {rank}"] for rank in range(3)}
    assert horarun.run("--nproc-per-node", 3, "sh", "-c", PLACE).expect(0).ranks()[2] == ["2/3 2/3 0"]


def test_ranks_dealt_to_the_hosts_in_turn(horarun, hosts):
    hosts(2)
    options = ("-np", 3, "-H", "node1:2,node2:2", "--map-by", "node")
    done = horarun.run(*options, "sh", "-c", PLACE + '; echo "$HOROVOD_HOSTNAME"').expect(0)
    assert done.ranks() == {0: ["0/3 0/2 0", "node1"], 1: ["1/3 0/1 1", "node2"], 2: ["2/3 1/2 0", "node1"]}
    horarun.run("-H", "node1:2,node2:2", "--map-by", "node", "--smoke").expect(0)


def cpus_here():
    return sorted(os.sched_getaffinity(0))


def allowed(done):
    """The CPUs of each rank, as the kernel says."""
    return {rank: [line.split()[1] for line in lines] for rank, lines in done.ranks().items()}


SHOW_CPUS = ("grep", "Cpus_allowed_list", "/proc/self/status")


def test_ranks_on_listed_cpus(horarun, hosts):
    hosts(2)
    last, first = cpus_here()[-1], cpus_here()[0]
    done = horarun.run("-H", "node1:2,node2:1", "--bind", f"cpu-list:{last}:{first}", *SHOW_CPUS).expect(0)
    assert allowed(done) == {0: [str(last)], 1: [str(first)], 2: [str(last)]}
    assert f"node1: rank 1: CPU {first} (its list)" in done.messages
    shared = horarun.run("-np", 1, "--bind", f"cpu-list:{first}", *SHOW_CPUS).expect(0)
    assert allowed(shared) == {0: [str(first)]}


@pytest.mark.parametrize("kind", ["l3", "socket"])
def test_ranks_on_caches_and_sockets(horarun, kind):
    cpu = cpus_here()[0]
    path = {
        "l3": f"/sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list",
        "socket": f"/sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list",
    }[kind]
    if not os.path.exists(path):
        pytest.skip(f"{path} does not exist here")
    members = set()
    with open(path, encoding="ascii") as file:
        for item in file.read().strip().split(","):
            start, _, end = item.partition("-")
            members.update(range(int(start), int(end or start) + 1))
    script = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = horarun.run("-np", 1, "--bind", kind, PYTHON, "-S", "-c", script).expect(0)
    assert done.ranks() == {0: [str(sorted(members & set(cpus_here())))]}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_cpus_that_the_job_may_not_use(horarun, hosts, tmp_path):
    hosts(2)
    most = max(cpus_here()) + 1
    done = horarun.run("-H", "node1,node2", "--bind", f"cpu-list:{most}", "touch", tmp_path / "started").expect(125)
    assert "E_BIND" in done.messages and f"CPU {most} is not one that this job may use" in done.messages
    assert not (tmp_path / "started").exists()
    # What a container or a batch system takes away is not there either.
    first, *_, last = cpus_here()
    with_one = {"preexec_fn": lambda: os.sched_setaffinity(0, {first})}
    less = horarun.run("-np", 1, "--bind", f"cpu-list:{last}", "true", **with_one)
    assert f"CPU {last} is not one that this job may use; it may use {first} [E_BIND]" in less.expect(125).messages


def test_a_rank_that_fails_alone(horarun, hosts):
    hosts(2)
    options = ("-H", "node1:2,node2:1", "--keep-going", "--json", "--stdin", "all")
    script = 'test $RANK != 1 || exit 5; read line; echo "$line"; test $RANK != 2 || exit 6'
    job = horarun.start(*options, "sh", "-c", script, stdin=subprocess.PIPE)
    reported = b""
    while b'"event":"rank_exit"' not in reported:
        chunk = os.read(job.process.stderr.fileno(), 4096)
        assert chunk, reported
        reported += chunk
    done = job.finish(input=b"goes on\n").expect(5)
    assert done.ranks() == {0: ["goes on"], 2: ["goes on"]}
    assert "rank 1 on node1" in json.loads(done.messages.splitlines()[-1])["message"]


SAY = ("sh", "-c", "echo out$RANK; echo err$RANK >&2")


def test_output_of_some_ranks(horarun, tmp_path):
    done = horarun.run("-np", 4, "--show-ranks", "1,3", "--output-filename", tmp_path, *SAY).expect(0)
    assert done.ranks() == {1: ["out1"], 3: ["out3"]}
    assert done.ranks("stderr") == {1: ["err1"], 3: ["err3"]}
    for rank in range(4):
        for name, text in (("stdout", f"out{rank}"), ("stderr", f"err{rank}")):
            assert (tmp_path / f"rank.{rank}" / name).read_text() == f"[{rank}]<{name}>:{text}\n"


def test_output_to_files_only(horarun, tmp_path):
    done = horarun.run("-np", 2, "--show-ranks", "none", "--output-filename", tmp_path, *SAY).expect(0)
    assert done.out == b"" and done.ranks("stderr") == {}
    assert (tmp_path / "rank.1" / "stdout").read_text() == "[1]<stdout>:out1\n"


def test_hidden_ranks_are_not_held_up(horarun):
    """Hidden output returns the host's credit: more than its window passes."""
    script = "import os, sys\nfor _ in range(64): os.write(1, b'x' * 99999 + b'\\n')\nos.write(2, b'end\\n')"
    done = horarun.run("-np", 2, "--show-ranks", "0", PYTHON, "-S", "-c", script).expect(0)
    assert len(done.out) == 64 * (100_000 + len("[0]<stdout>:"))


def test_a_hidden_rank_that_fails_is_still_named(horarun):
    script = "test $RANK = 0 || { echo reason >&2; exit 7; }"
    done = horarun.run("-np", 2, "--show-ranks", "0", "sh", "-c", script).expect(7)
    assert "rank 1" in done.messages and "reason" in done.messages


def test_stderr_on_stdout(horarun, tmp_path):
    done = horarun.run("-np", 2, "--merge-stderr", "--output-filename", tmp_path, *SAY).expect(0)
    assert done.err == b""
    assert done.ranks() == {0: ["out0"], 1: ["out1"]}
    assert sorted(line for line in done.text.splitlines() if "stderr" in line) == [
        "[0]<stderr>:err0",
        "[1]<stderr>:err1",
    ]
    assert (tmp_path / "rank.1" / "stderr").read_text() == "[1]<stderr>:err1\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-binding", "core"), "horarun calls this --bind core|l3|socket|numa|none"),
        (("-genv", "A", "1"), "horarun calls this -x NAME=VALUE (once for each of several programs)"),
        (("--rdzv-backend=c10d",), "it is not needed: every job has its own rendezvous"),
        (("--num_processes", "2"), "horarun calls this -np N"),
        (("--ntasks-per-node=2",), "horarun calls this --nproc-per-node N"),
        (("--num_gpus", "2"), "horarun calls this --nproc-per-node N"),
    ],
)
def test_another_name(horarun, options, message, tmp_path):
    done = horarun.run("-np", 2, *options, "touch", tmp_path / "started").expect(2)
    assert done.messages == f"horarun: error: unknown option '{options[0].split('=')[0]}'; {message}\n"
    assert not os.path.exists(tmp_path / "started")
