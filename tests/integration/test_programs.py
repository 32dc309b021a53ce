# SPDX-License-Identifier: Apache-2.0
"""Jobs of several programs, with ':' between them as in mpirun and Hydra."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import mpich

SOURCE = pathlib.Path(__file__).resolve().parent / "programs" / "mpi_appnum.c"
PYTHON = "/usr/bin/python3"
FIRST = ("sh", "-c", 'echo "first $RANK/$WORLD_SIZE $A $B"')
SECOND = ("sh", "-c", 'echo "second $RANK/$WORLD_SIZE $A $B"; cat')


def test_one_world_over_two_hosts(horarun, hosts, tmp_path):
    hosts(2)
    (tmp_path / "env").write_text("B=file\n")
    report = tmp_path / "report.json"
    options = ("-np", 1, "-H", "node1:2,node2:2", "-x", "A=1", "--report", report)
    done = horarun.run(
        *(*options, *FIRST, ":", "-np", 2, "-x", "A=2", "--env-file", tmp_path / "env", *SECOND),
        *(":", "-np", 1, "sh", "-c", 'echo "third $RANK/$WORLD_SIZE ${A-unset} ${B-unset} $1 $2"', "x", "a b"),
        env={"B": "all"},
    ).expect(0)
    assert done.ranks() == {
        0: ["first 0/4 1 all"],
        1: ["second 1/4 2 file"],
        2: ["second 2/4 2 file"],
        3: ["third 3/4 unset all a b "],
    }
    record = json.loads(report.read_text())
    assert [program["ranks"] for program in record["programs"]] == [1, 2, 1]
    assert record["programs"][0]["command"] == list(FIRST)
    assert [rank["program"] for rank in record["ranks"]] == [0, 1, 1, 2]


@pytest.mark.parametrize("by", ["slot", "node"])
def test_ranks_are_numbered_by_program_wherever_they_are(horarun, hosts, by):
    hosts(2)
    say = ("sh", "-c", 'echo "$0 $HOROVOD_HOSTNAME"')
    options = ("-np", 2, "--map-by", by, "-H", "node1:2,node2:2")
    done = horarun.run(*options, *say, "one", ":", "-np", 2, *say, "two").expect(0)
    placed = ["node1", "node1", "node2", "node2"] if by == "slot" else ["node1", "node2", "node1", "node2"]
    assert done.ranks() == {rank: [f"{'one' if rank < 2 else 'two'} {host}"] for rank, host in enumerate(placed)}


def test_standard_input_is_that_of_rank_0(horarun):
    done = horarun.run("-np", 1, *SECOND, ":", "-np", 1, *SECOND, input=b"typed\n").expect(0)
    assert done.ranks() == {0: ["second 0/2  ", "typed"], 1: ["second 1/2  "]}


def test_the_failed_program_is_named(horarun, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("#!/bin/sh\nexit 7\n")
    bad.chmod(0o755)
    done = horarun.run("-np", 1, "sleep", 60, ":", "-np", 1, bad).expect(7)
    assert f"rank 1 on localhost ({bad}) exited with code 7" in done.messages, done
    absent = horarun.run("-np", 1, "true", ":", "-np", 1, "no-such-program").expect(127)
    assert "no-such-program" in absent.messages and "E_PROGRAM_NOT_FOUND" in absent.messages


def test_a_job_that_is_started_again(horarun, tmp_path):
    once = f'test -e {tmp_path}/was || {{ touch {tmp_path}/was; exit 3; }}; echo "again $RANK"'
    done = horarun.run("--restarts", 1, "-np", 1, "sleep", 1, ":", "-np", 1, "sh", "-c", once).expect(0)
    assert done.ranks() == {1: ["again 1"]}


def test_a_colon_for_a_program(horarun):
    done = horarun.run("-np", 1, "echo", "a", ":", "-np", 1, "--", "echo", "b", ":", "c").expect(0)
    assert done.ranks() == {0: ["a"], 1: ["b : c"]}
    assert horarun.run("-np", 1, "--", "echo", ":", "a").expect(0).ranks() == {0: [": a"]}


def test_collectives_between_programs(horarun):
    script = (
        "import hora.numpy as hvd, numpy, sys; hvd.init(); "
        "print(sys.argv[1], hvd.allreduce(numpy.ones(1), op=hvd.Sum)[0])"
    )
    pytest.importorskip("numpy", reason="the programs use hora.numpy")
    program = (PYTHON, "-c", script)
    done = horarun.run("-np", 2, *program, "one", ":", "-np", 1, *program, "two").expect(0)
    assert done.ranks() == {0: ["one 3.0"], 1: ["one 3.0"], 2: ["two 3.0"]}


@pytest.mark.parametrize(("pmi", "compiler"), [("pmix", "mpicc.openmpi"), ("pmi1", "mpicc.mpich")])
def test_mpi_knows_the_number_of_the_program(horarun, hosts, build, shared, pmi, compiler):
    hosts(2)
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    if not os.path.exists(os.path.join(build, f"share/hora/{os.uname().machine}/bundle/bin/hora-{pmi}")):
        pytest.skip(f"built without {pmi}")
    program = os.path.join(shared, f"mpi_appnum.{pmi}")
    subprocess.run([compiler, "-o", program, str(SOURCE)], check=True, timeout=120)
    words = ("-H", "node1:2,node2:2", "--pmi", pmi, "-np", 1, program, "a", ":", "-np", 2, program, "b")

    def check(done):
        assert done.ranks() == {0: ["rank 0 of 3: program 0 a"], **{r: [f"rank {r} of 3: program 1 b"] for r in (1, 2)}}

    if pmi == "pmi1":
        mpich.run(horarun, check, *words)
    else:
        check(horarun.run(*words).expect(0))


def test_a_plan_shows_the_program_of_each_rank(horarun):
    options = ("--dry-run", "-H", "a:2,b:2", "--map-by", "node", "-np", 1, "./a", "--lr", 3, ":", "-np", 3, "./b")
    text = horarun.run(*options).expect(0).out.decode()
    assert "command of 0       ./a --lr 3\n" in text and "command of 1-3     ./b\n" in text, text
    plan = json.loads(horarun.run("--json", *options).expect(0).out)
    assert {rank["rank"]: rank["program"] for rank in plan["ranks"]} == {0: 0, 1: 1, 2: 1, 3: 1}


def test_one_variable_for_each_program(horarun, tmp_path):
    (tmp_path / "hora.yaml").write_text("horarun:\n  env: [SHARED=file]\n")
    threads = 'echo "$OMP_NUM_THREADS $CUDA_VISIBLE_DEVICES ${SHARED-unset}"'
    done = horarun.run(
        *("--gpus-per-rank", 1, "-np", 1, "-x", "OMP_NUM_THREADS=7", "sh", "-c", threads),
        *(":", "-np", 1, "-x", "CUDA_VISIBLE_DEVICES=5", "-x", "OMP_NUM_THREADS=3", "sh", "-c", threads),
        *(":", "-np", 1, "sh", "-c", 'echo "$SHARED"'),
        cwd=tmp_path,
        env={"CUDA_VISIBLE_DEVICES": "2,4"},
    ).expect(0)
    assert done.ranks() == {0: ["7 2 unset"], 1: ["3 5 unset"], 2: ["file"]}, done


def test_a_file_of_programs(horarun, hosts, tmp_path):
    """As mpirun's --app and Hydra's -configfile have it."""
    hosts(2)
    file = tmp_path / "programs"
    show = "sh -c 'echo \"$0 $RANK/$WORLD_SIZE $A $B\"'"
    file.write_text(f"# two programs\n\n-np 1 -x A=own {show} first\n-np 2 \\\n  {show} 'the second'\n")
    expected = {0: ["first 0/3 own 2"], 1: ["the second 1/3 1 2"], 2: ["the second 2/3 1 2"]}
    for name in ("--programs", "--app", "-configfile"):
        options = ("-H", "node1:2,node2:2", "-x", "A=1", "-x", "B=2")
        assert horarun.run(*options, name, file).expect(0).ranks() == expected
    file.write_text("-np 1 true\n-np 1 no-such-program\n")
    assert "E_PROGRAM_NOT_FOUND" in horarun.run("--app", file).expect(127).messages
    file.write_text("-np 1 true\n-np 1 -host node2 true\n")
    assert f"{file}:2: -host is for the whole job" in horarun.run("--app", file).expect(2).messages


def test_a_program_for_each_rank(horarun, hosts, tmp_path):
    """As srun's --multi-prog has it."""
    hosts(2)
    file = tmp_path / "ranks"
    file.write_text("0 echo alone\n1,3 sh -c 'echo \"$0 $RANK\"' offset=%o\n* echo rest %o task=%t\n")
    done = horarun.run("-np", 6, "-H", "node1:3,node2:3", "--multi-prog", file).expect(0)
    assert done.ranks() == {
        0: ["alone"],
        1: ["offset=0 1"],
        2: ["rest 0 task=2"],
        3: ["offset=1 3"],
        4: ["rest 1 task=4"],
        5: ["rest 2 task=5"],
    }
    file.write_text("0 sleep 60\n1 sh -c 'exit 7'\n")
    done = horarun.run("--multi-prog", file).expect(7)
    assert "rank 1 on localhost (sh -c 'exit 7') exited with code 7" in done.messages, done
