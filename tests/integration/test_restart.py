# SPDX-License-Identifier: Apache-2.0
"""--restarts: a job that fails is started again, whatever its program is."""

import json
import os
import re
import signal
import subprocess

import pytest

PYTHON = "/usr/bin/python3"
has_torch = pytest.mark.skipif(
    os.system(f"{PYTHON} -c 'import torch' 2>/dev/null") != 0, reason="no torch for the system's Python"
)
ATTEMPT = 'echo "$HORA_RESTART $RANK/$WORLD_SIZE"'


def fail_below(attempt, rank=1, how="exit 5"):
    """A shell's program that fails on one rank in the first attempts."""
    return ("sh", "-c", f"{ATTEMPT}; test $HORA_RESTART -ge {attempt} || test $RANK != {rank} || {how}; exit 0")


def test_started_again_until_it_succeeds(horarun):
    done = horarun.run("-np", 2, "--restarts", 3, *fail_below(2)).expect(0)
    assert done.ranks()[0][-1] == "2 0/2" and done.ranks()[1] == ["0 1/2", "1 1/2", "2 1/2"]
    assert "restart 1 of 3" in done.messages and "restart 2 of 3" in done.messages
    assert "rank 1 on" in done.messages


def test_all_attempts_used_up(horarun):
    # Another error each time: the same one would end the job earlier.
    done = horarun.run("-np", 2, "--restarts", 2, *fail_below(9, how="exit $((HORA_RESTART + 5))")).expect(7)
    assert done.ranks()[1] == ["0 1/2", "1 1/2", "2 1/2"]
    assert "all attempts are used up (--restarts 2)" in done.messages


def test_the_same_error_at_once(horarun):
    done = horarun.run("-np", 1, "--restarts", 50, *fail_below(99, rank=0)).expect(5)
    assert done.ranks()[0] == ["0 0/1", "1 0/1", "2 0/1"]
    assert "the same error came at once 3 times" in done.messages


@pytest.mark.parametrize("code", [2, 64, 126, 127])
def test_wrong_usage_is_final(horarun, code):
    done = horarun.run("-np", 1, "--restarts", 3, *fail_below(1, rank=0, how=f"exit {code}")).expect(code)
    assert done.ranks()[0] == ["0 0/1"]
    assert f"not restarted: exit code {code} means wrong usage" in done.messages


def test_a_signal_of_the_user_is_final(horarun):
    job = horarun.start("-np", 2, "--restarts", 3, "sh", "-c", "echo runs; exec sleep 100")
    job.read_until("runs", times=2)
    job.send_signal(signal.SIGTERM)
    assert "restart 1" not in job.finish().expect(128 + signal.SIGTERM).messages


def test_a_signal_during_the_delay(horarun):
    job = horarun.start("-np", 1, "--restarts", 3, "--restart-delay", "100", "sh", "-c", "echo fails; exit 3")
    seen = b""
    while b"restart 1 of 3" not in seen:
        chunk = os.read(job.process.stderr.fileno(), 4096)
        assert chunk, seen
        seen += chunk
    job.send_signal(signal.SIGINT)
    assert job.finish().expect(128 + signal.SIGINT).ranks().get(0, ["fails"]) == ["fails"]


def test_a_signal_that_is_ignored_takes_no_restart(horarun):
    """As under nohup, whose terminal was closed long before the rank fails."""
    job = horarun.start(
        "-np",
        1,
        "--restarts",
        1,
        "sh",
        "-c",
        "echo runs; read line; test $HORA_RESTART = 1",
        stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    job.read_until("runs")
    job.send_signal(signal.SIGHUP)
    assert "restart 1 of 1" in job.finish(b"\n").expect(0).messages


def test_files_have_the_output_of_all_attempts(horarun, tmp_path):
    horarun.run("-np", 2, "--restarts", 1, "--output-filename", tmp_path, *fail_below(1)).expect(0)
    assert (tmp_path / "rank.1" / "stdout").read_text() == "[1]<stdout>:0 1/2\n[1]<stdout>:1 1/2\n"


def test_variables_of_torchrun(horarun):
    show = 'echo "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID"; test $HORA_RESTART = 1'
    done = horarun.run("-np", 1, "--max-restarts", 4, "sh", "-c", show, env={"TORCHELASTIC_RUN_ID": "stray"}).expect(0)
    first, second = (line.split() for line in done.ranks()[0])
    assert first[:2] == ["0", "4"] and second[:2] == ["1", "4"]
    assert first[2] == second[2] != "stray"


def test_report_and_events_list_the_attempts(horarun, tmp_path):
    report = tmp_path / "job.json"
    done = horarun.run("-np", 2, "--restarts", 2, "--json", "--report", report, *fail_below(1)).expect(0)
    events = [json.loads(line) for line in done.messages.splitlines() if line.startswith('{"schema":')]
    restarts = [event for event in events if event["event"] == "restart"]
    assert [(event["attempt"], event["exit_code"]) for event in restarts] == [(1, 5)]
    assert restarts[0]["cause"].startswith("rank 1 on ")
    assert [event["event"] for event in events].count("job_end") == 1
    document = json.loads(report.read_text())
    assert document["exit_code"] == 0
    assert [attempt["exit_code"] for attempt in document["failed_attempts"]] == [5]
    assert "exit code 5" in document["failed_attempts"][0]["cause"]


def test_faults_are_injected_once(horarun):
    script = "echo $HORA_RESTART; test $HORA_RESTART = 1 || exec sleep 100"
    done = horarun.run("-np", 2, "--restarts", 1, "--chaos", "kill:1@1ms", "sh", "-c", script).expect(0)
    assert done.ranks()[0][-1] == done.ranks()[1][-1] == "1"


def test_a_lost_host_is_replaced_by_a_spare_one(horarun, hosts):
    cluster = hosts(3)
    script = "echo $HORA_RESTART $HOROVOD_HOSTNAME; test $HORA_RESTART = 1 || exec sleep 100"
    job = horarun.start("-np", 2, "-H", "node1:1,node2:1,node3:1", "--restarts", 2, "--lease", 3, "sh", "-c", script)
    job.read_until("0 node", times=2)
    cluster.act("crash", 2)
    done = job.finish().expect(0)
    assert done.ranks() == {0: ["1 node1"], 1: ["1 node3"]}
    assert "without host node2" in done.messages


def test_what_is_left_has_fewer_ranks(horarun, hosts):
    cluster = hosts(2)
    script = "echo $HORA_RESTART $RANK/$WORLD_SIZE; test $HORA_RESTART = 1 || exec sleep 100"
    job = horarun.start("-np", 4, "-H", "node1:2,node2:2", "--restarts", 2, "--lease", 3, "sh", "-c", script)
    job.read_until("0 ", times=4)
    cluster.act("crash", 1)
    done = job.finish().expect(0)
    assert done.ranks() == {0: ["1 0/2"], 1: ["1 1/2"]}
    assert "with 2 ranks instead of 4" in done.messages


@has_torch
def test_a_snapshot_of_torch_elastic(horarun, hosts, shared):
    """Loses a rank in the middle, goes on from its snapshot, and ends with the weights of a run without loss."""
    hosts(2)
    folder = f"{shared}/snapshots-{os.getpid()}"
    os.makedirs(folder)

    def train(snapshot, fails):
        options = ("-H", "node1:1,node2:1", "--max-restarts", 3, "--start-timeout", 60)
        program = (PYTHON, f"{shared}/snapshot_ddp.py", f"{folder}/{snapshot}", 6, fails)
        return horarun.run(*options, *program, env={"TORCHELASTIC_RESTART_COUNT": "9"}).expect(0).ranks()

    whole, lossy = train("whole.pt", -1), train("lossy.pt", 3)
    assert whole[1] == ["attempt 0: begins with epoch 0, 2 ranks"]
    assert lossy[1] == [*whole[1], "attempt 1: begins with epoch 4, 2 ranks"]
    assert lossy[0][-1] == whole[0][-1] and whole[0][-1].startswith("weights ")


def tutorial():
    """PyTorch's own program, from a checkout of its repository of examples, and one of the same shape."""
    name = "distributed/ddp-tutorial-series/multigpu_torchrun.py"
    checkout = os.environ.get("HORA_PYTORCH_EXAMPLES")
    needed = pytest.mark.skipif(not checkout, reason="HORA_PYTORCH_EXAMPLES names no checkout of pytorch/examples")
    return ["snapshot_on_gpus.py", pytest.param(os.path.join(checkout or "", name), marks=needed)]


@has_torch
@pytest.mark.parametrize("program", tutorial(), ids=["of the same shape", "PyTorch's own"])
def test_a_tutorials_program_for_gpus(horarun, shared, tmp_path, program):
    """Runs unchanged on a double of the devices, loses rank 1 in epoch 6, and goes on from the snapshot of epoch 4."""
    words = (f"{shared}/on_gpu_double.py", "--dies", "1:6", os.path.join(shared, program), 10, 4, "--batch_size", 64)
    done = horarun.run("-np", 2, "--max-restarts", 3, PYTHON, *words, cwd=tmp_path).expect(0)
    assert "horarun: rank 1 on localhost exited with code 13" in done.messages
    assert "restart 1 of 3" in done.messages and "restart 2" not in done.messages
    epochs = {
        rank: [int(epoch) for epoch in re.findall(r"Epoch (\d+) \| (?:Batchsize|Steps)", "\n".join(lines))]
        for rank, lines in done.ranks().items()
    }
    assert epochs[1] == [*range(7), *range(4, 10)], done
    assert epochs[0] in ([*range(6), *range(4, 10)], epochs[1]), done  # the end of rank 1 may come first
    assert (tmp_path / "snapshot.pt").exists()
