# SPDX-License-Identifier: Apache-2.0
"""Jobs inside allocations of a real Slurm on the test hosts (tests/support/engines/slurm.py)."""

import collections
import json
import os
import re
import shutil
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines"))
import slurm

import jobs

HOSTS = 4


@pytest.fixture(scope="module")
def clusters():
    """The cluster of this module, by its hosts: after a test that broke hosts there are others."""
    held = {}
    yield held
    for one in held.values():
        one.close()
        shutil.rmtree(one.folder, ignore_errors=True)


@pytest.fixture
def cluster(hosts, clusters):
    if slurm.missing():
        pytest.skip(f"{slurm.missing()} is not installed (scripts/setup --tests)")
    present = hosts(HOSTS)
    if present not in clusters:
        folder = tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp")
        os.chmod(folder, 0o755)
        clusters[present] = slurm.Cluster(present, folder)
    return clusters[present]


@pytest.fixture
def allocation(cluster):
    held = []

    def allocate(*options):
        held.append(cluster.allocate(*options))
        return held[-1]

    yield allocate
    for one in held:
        one.close()


def start(horarun, allocation, *arguments, **options):
    return horarun.start(*arguments, env=allocation.variables, **options)


# Four processors a node: eight tasks on four nodes are as unequal as Slurm makes them.
SHAPES = {
    "2(x4)": ["-N4", "--ntasks-per-node=2"],
    "1(x2)": ["-N2", "-n2"],
    "4,2,1(x2)": ["-N4", "-n8"],
    "no tasks": ["-N3"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ranks_are_where_srun_starts_tasks(horarun, allocation, shape):
    held = allocation(*SHAPES[shape])
    done = start(horarun, held, "sh", "-c", "hostname").finish().expect(0)
    by_host = collections.Counter(line for lines in done.ranks().values() for line in lines)
    assert by_host == collections.Counter(held.srun("hostname").split()), (done, held.variables)
    slots = sum(by_host.values())
    told = rf"horarun: Slurm job {held.job}: {slots} slots? on {len(by_host)} hosts \(.*\); agents start by srun\n"
    assert re.match(told, done.messages), done


def test_a_collective_job(horarun, allocation):
    held = allocation("-N4", "--ntasks-per-node=2")
    done = start(horarun, held, "--smoke").finish().expect(0)
    assert "8 ranks" in done.text or "8 ranks" in done.messages, done


def test_variables_of_the_step_stay_with_it(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=2")
    ranks = start(horarun, held, "sh", "-c", "env | grep ^SLURM").finish().expect(0).ranks()
    assert len(ranks) == 4
    for lines in ranks.values():
        seen = dict(line.split("=", 1) for line in lines)
        # What the allocation says; of the step that the agents run in, only what describes the job.
        differ = {name for name, value in seen.items() if held.variables.get(name) != value}
        assert not [name for name in differ if not name.startswith("SLURM_JOB_") or name in held.variables], seen
        assert seen["SLURM_NTASKS"] == "4" and seen["SLURM_JOB_ID"] == held.job and "SLURM_JOB_NODELIST" in seen
        assert not seen.keys() & {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID"}


def test_ranks_belong_to_the_step_and_end_with_it(horarun, allocation, cluster):
    held = allocation("-N2", "--ntasks-per-node=1")
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 2)
    assert len([step for step in held.steps() if re.fullmatch(rf"{held.job}\.\d+", step)]) == 2
    cluster.run("scancel", held.job)
    done = job.finish(timeout=60)
    assert done.code not in (0, 1), done
    jobs.expect_nothing_left(job, also=jobs.agents)


@pytest.mark.parametrize("who", ["horarun", "srun"])
def test_killed_by_force(horarun, allocation, who):
    held = allocation("-N3", "--ntasks-per-node=1")
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", 3)
    if who == "horarun":
        job.send_signal(signal.SIGKILL)
        job.process.wait(timeout=20)
    else:
        sruns = [p for p in job.survivors() if re.match(r"srun\b.*--unbuffered", p.command)]
        assert len(sruns) >= 3, job.survivors()
        os.kill(sruns[0].pid, signal.SIGKILL)
        done = job.finish(timeout=60)
        assert "E_HOST_LOST" in done.messages, done
        # A command to paste, which begins as the agents did.
        assert re.search(r"try: env .*srun .*--nodelist=node\d' sh -c 'uptime; dmesg \| tail'\n", done.messages), done
    jobs.expect_nothing_left(job, also=jobs.agents)
    jobs.wait_until(lambda: not held.steps(), "the steps to end")


def test_what_a_rank_prints_and_reads_is_whole(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=1")
    data = os.urandom(8 << 20) + b"\n"
    job = start(horarun, held, "--no-prefix-output", "-np", 1, "cat", stdin=-1)
    assert job.finish(data).expect(0).out == data


def test_exit_code_and_signal(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=1")
    assert start(horarun, held, "sh", "-c", "exit $((7 * $HOROVOD_RANK))").finish().code == 7
    assert start(horarun, held, "sh", "-c", "kill -9 $$").finish().code == 137


def test_what_the_user_says_wins(horarun, allocation):
    held = allocation("-N2", "--ntasks-per-node=1")
    shown = json.loads(start(horarun, held, "--dry-run", "--json", "true").finish().expect(0).text)
    assert (shown["engine"]["name"], shown["engine"]["job"]) == ("slurm", held.job) and "srun" in shown["rsh"]
    done = start(horarun, held, "--engine", "none", "-np", 2, "hostname").finish().expect(0)
    assert "Slurm" not in done.messages
    done = start(horarun, held, "-H", "node2:1", "--engine", "slurm", "hostname").finish().expect(0)
    assert done.ranks() == {0: ["node2"]}, done
    done = start(horarun, held, "-np", 3, "true").finish().expect(2)
    assert "slots" in done.messages
    done = start(horarun, held, "--engine-args", "--no-such-option", "true").finish()
    assert done.code not in (0, 1) and "no-such-option" in done.messages, done


def test_who_tells_of_the_allocation(horarun, allocation, tmp_path):
    held = allocation("-N2", "--ntasks-per-node=1")
    text = f"Slurm job {held.job}: 2 slots on 2 hosts (node1:1,node2:1); agents start by srun"
    expected = {"name": "slurm", "job": held.job, "text": text}
    examined = json.loads(start(horarun, held, "doctor", "--json").finish().text)
    assert examined["engine"] == expected and [host["name"] for host in examined["hosts"]] == ["node1", "node2"]
    assert text in start(horarun, held, "--show-config").finish().expect(0).text
    done = start(horarun, held, "--report", tmp_path / "report.json", "--json", "true").finish().expect(0)
    assert json.loads((tmp_path / "report.json").read_text())["engine"] == expected
    events = [json.loads(line) for line in done.messages.splitlines()]
    told = next(event for event in events if event["event"] == "allocation")
    assert (told["engine"], told["job"], told["text"]) == ("slurm", held.job, text)
