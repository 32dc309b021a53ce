# SPDX-License-Identifier: Apache-2.0
"""Each rank has a GPU of its own, in whatever words Slurm was asked for GPUs."""

import collections

import pytest
from slurm_jobs import start

HOSTS = 2
SHOW = ("sh", "-c", 'echo "$(hostname) ${CUDA_VISIBLE_DEVICES-unset}"')
# What is asked for, the ranks on each node.
FORMS = {
    "gpus-per-task": (["-n4", "--gpus-per-task=1"], (2, 2)),
    "gpus-per-task, unequal": (["-N2", "-n3", "--gpus-per-task=1"], (2, 1)),
    "gpus": (["-N2", "--gpus=4"], (2, 2)),
    "gpus, unequal": (["-N2", "--gpus=3"], (2, 1)),
    "gpus and tasks": (["-N2", "--gpus=4", "--ntasks-per-node=2"], (2, 2)),
    "gpus-per-node": (["-N2", "--gpus-per-node=2"], (2, 2)),
    "gres and tasks": (["-N2", "--gres=gpu:2", "--ntasks-per-node=2"], (2, 2)),
    "ntasks-per-gpu": (["-N2", "--gpus-per-node=2", "--ntasks-per-gpu=1"], (2, 2)),
    "gpus, ntasks-per-gpu": (["-N2", "--gpus=4", "--ntasks-per-gpu=1"], (2, 2)),
    "gpus, gpu-bind": (["-N2", "--ntasks-per-node=2", "--gpus=4", "--gpu-bind=single:1"], (2, 2)),
    "cpus-per-gpu": (["-N2", "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-gpu=1"], (2, 2)),
    "tres-per-task": (["-N2", "-n4", "--tres-per-task=gres/gpu:1"], (2, 2)),
    "tres-bind": (["-N2", "-n4", "--gpus=4", "--tres-bind=gres/gpu:per_task:1"], (2, 2)),
}


@pytest.fixture
def asked(cluster, allocation):
    def ask(form):
        options, shares = FORMS[form]
        word = next((each for each in options if each.startswith("--tres-")), None)
        if word and word.split("=")[0] not in cluster.run("salloc", "--help"):
            pytest.skip(f"this Slurm has no {word.split('=')[0]}")
        return allocation(*options), shares

    return ask


@pytest.mark.parametrize("form", FORMS)
def test_each_rank_has_its_own(horarun, asked, form):
    held, shares = asked(form)
    done = start(horarun, held, "--gpus-per-rank", 1, *SHOW).finish().expect(0)
    seen = [line for lines in done.ranks().values() for line in lines]
    assert len(set(seen)) == len(seen), done
    assert {line.split()[1] for line in seen} <= {"0", "1"}, done
    by_host = collections.Counter(line.split()[0] for line in seen)
    assert tuple(sorted(by_host.values(), reverse=True)) == shares, (done, held.variables)
    assert "not all hosts" not in done.messages, done


@pytest.mark.parametrize("form", FORMS)
def test_a_part_of_the_nodes(horarun, asked, form):
    """A step on one node has to ask for that node's GPUs."""
    held, _ = asked(form)
    done = start(horarun, held, "-np", 2, "--gpus-per-rank", 1, *SHOW).finish().expect(0)
    seen = sorted(line for lines in done.ranks().values() for line in lines)
    assert seen == ["node1 0", "node1 1"], (done, held.variables)
