# SPDX-License-Identifier: Apache-2.0
"""The report of a job that hangs: the state of its ranks as a table, and their merged stacks."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

import jobs


def check_stacks(text):
    """Three ranks wait, one stands elsewhere: two groups, the lonely one first."""
    lonely = text.index("  rank 1:")
    many = text.index("  ranks 0,2,3:") if "  ranks 0,2,3:" in text else text.index("  ranks 0,2-3:")
    assert lonely < many, text
    assert "in loses_its_way" in text[lonely:many] and "in waits_for_the_others" in text[many:], text
    assert text.count("in waits_for_the_others") == 1, text


def test_sigquit_shows_stacks_and_the_job_goes_on(horarun, shared):
    job = horarun.start("-np", 4, "python3", f"{shared}/hang.py")
    job.read_until("ready", 4)
    job.send_signal(signal.SIGQUIT)
    err = read_until(job, "in waits_for_the_others")
    check_stacks(err)
    assert "where the ranks stand (SIGQUIT)" in err and "python3" in err
    assert job.process.poll() is None
    job.send_signal(signal.SIGTERM)
    job.finish().expect(128 + 15)


def test_sigquit_while_hosts_are_examined_does_not_end_the_job(horarun, tmp_path):
    """As before the job has its hosts at all; the parent of the command is horarun."""
    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\nkill -QUIT $PPID\nshift\nexec sh -c "$*"\n')
    rsh.chmod(0o755)
    options = ("--transport", "command", "--rsh", str(rsh))
    done = horarun.run("--check-hosts", "-H", "a", *options, "echo", "done").expect(0)
    assert "done" in done.text, done


# timeout leads a process group of its own. Next to each other, ranks share a session where they are more than the CPUs.
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_ranks_start_has_stacks_too(horarun, shared, ranks):
    job = horarun.start("-np", ranks, "sh", "-c", "timeout 1000 python3 $0; exit $?", f"{shared}/hang.py")
    job.read_until("ready", ranks)
    job.send_signal(signal.SIGQUIT)
    err = read_until(
        job, re.compile(rb"child process(es)? of .*:\n(.*\n)*.*child process(es)? of .*:\n(.*\n)*.*in <module>")
    )
    assert "  1 child process of rank 1:" in err and "in loses_its_way" in err, err
    job.send_signal(signal.SIGTERM)
    job.finish().expect(128 + 15)


def read_until(job, text, seconds=30):
    """stderr until `text` was seen; what was read is not in finish()."""
    seen = bytearray()
    os.set_blocking(job.process.stderr.fileno(), False)

    def look():
        seen.extend(job.process.stderr.read1(65536) or b"")
        return text.encode() in seen if isinstance(text, str) else text.search(seen)

    try:
        jobs.wait_until(look, f"{text!r} on stderr; so far {bytes(seen)!r}", seconds)
    finally:
        os.set_blocking(job.process.stderr.fileno(), True)
    return seen.decode(errors="replace")


def test_sigquit_during_the_start_shows_where_that_stands(horarun, hosts):
    two = hosts(2)
    two.act("freeze", 2)
    try:
        job = horarun.start("-H", two.spec(1), "--start-timeout", "60s", "--verbose", "echo", "done")
        read_until(job, "node2: ssh banner")
        job.send_signal(signal.SIGQUIT)
        err = read_until(job, re.compile(rb"sends no banner.*\n +try: .*\n"))
        assert "where the start stands (SIGQUIT)" in err and "node2  ssh banner" in err and "sends no banner" in err, (
            err
        )
    finally:
        two.act("thaw", 2)
    assert job.finish().expect(0).text.count("done") == 2


def test_a_time_limit_shows_stacks_first(horarun, shared):
    done = horarun.run("-np", 4, "--timeout", "3s", "--grace", "1s", "python3", f"{shared}/hang.py").expect(124)
    check_stacks(done.messages)
    assert "(--timeout)" in done.messages and "E_TIMEOUT" in done.messages
    assert done.messages.index("where the ranks stand") < done.messages.index("E_TIMEOUT")


@pytest.mark.parametrize("left", ["", "signal.signal(number, signal.SIG_DFL); "], ids=["ignored", "fatal"])
def test_an_interpreter_that_has_put_its_handler_away(horarun, left):
    """As at the end of every Python: being asked for its stacks must not kill it."""
    program = (
        "import faulthandler, os, signal, time; number = int(os.environ['HORA_STACKS_SIGNAL']); "
        f"assert faulthandler.unregister(number); {left}print('here', flush=True); time.sleep(600)"
    )
    done = horarun.run("-np", 2, "--timeout", "2s", "--grace", "1s", "python3", "-c", program).expect(124)
    assert done.ranks() == {0: ["here"], 1: ["here"]}
    assert "E_TIMEOUT" in done.messages and "signal" not in done.messages, done


@pytest.mark.parametrize("policy, code", [("warn", 143), ("dump", 143), ("kill", 124)])
def test_a_stall(horarun, shared, policy, code):
    job = horarun.start(
        "-np", 4, "--on-stall", policy, "--stall-after", "1500ms", "--grace", "1s", "python3", f"{shared}/hang.py"
    )
    job.read_until("ready", 4)
    if policy != "kill":
        err = read_until(job, "no rank has written" if policy == "warn" else "in waits_for_the_others")
        job.send_signal(signal.SIGTERM)
        done = job.finish().expect(code)
        err += done.messages
    else:
        err = job.finish().expect(code).messages
        assert "E_STALLED" in err
    assert "no rank has written anything or ended a collective for 1 s" in err
    if policy == "warn":
        assert "where the ranks stand" not in err
    else:
        check_stacks(err)


COMPUTES = """\
import os, subprocess, sys, time
rank = os.environ["HOROVOD_RANK"]
print("ready", flush=True)
if rank == "1": time.sleep(300)
busy = "import time; end = time.monotonic() + 6\\nwhile time.monotonic() < end: pass"
if sys.argv[1] == "child": subprocess.run([sys.executable, "-S", "-c", busy])
else: exec(busy)
if sys.argv[2] == "ends": os._exit(7)
time.sleep(300)
"""


@pytest.mark.parametrize("who", ["rank", "child"])
def test_a_rank_that_computes_is_not_stalled(horarun, tmp_path, who):
    (tmp_path / "program.py").write_text(COMPUTES)
    command = ["python3", "-S", str(tmp_path / "program.py"), who]
    done = horarun.run("-np", 2, "--on-stall", "kill", "--stall-after", "2s", *command, "ends").expect(7)
    assert re.search(r"for 2 s \(--stall-after\), but rank 0 computes \(\d+% of a CPU\): not stalled", done.messages), (
        done
    )
    assert done.messages.count("not stalled") == 1 and "E_STALLED" not in done.messages, done


def test_a_rank_that_has_computed_is(horarun, tmp_path):
    (tmp_path / "program.py").write_text(COMPUTES)
    command = ["python3", "-S", str(tmp_path / "program.py"), "rank", "sleeps"]
    done = horarun.run("-np", 2, "--on-stall", "kill", "--stall-after", "2s", "--grace", "1s", *command).expect(124)
    assert "E_STALLED" in done.messages and done.messages.count("not stalled") == 1, done


def test_a_rank_that_spins_in_a_collective_does_not_compute(horarun, tmp_path):
    """Rank 0 waits for rank 1, which sleeps, while another of its threads uses the processor."""
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    (tmp_path / "program.py").write_text(
        "import threading, time\nimport numpy as np\nimport hora.numpy as hvd\nhvd.init()\n"
        "def spin():\n    while True: pass\n"
        "if hvd.rank() == 1: time.sleep(300)\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
        "hvd.allreduce(np.ones(4), name='late')\n"
    )
    command = [sys.executable, str(tmp_path / "program.py")]
    done = horarun.run("-np", 2, "--on-stall", "kill", "--stall-after", "6s", "--grace", "1s", *command).expect(124)
    assert "E_STALLED" in done.messages and "allreduce 'allreduce.late'" in done.messages, done


def test_on_hosts_one_of_which_is_frozen(horarun, hosts, shared):
    four = hosts(4)
    job = horarun.start("-H", four.spec(1), "--json", "--lease", "20s", "python3", f"{shared}/hang.py")
    job.read_until("ready", 4)
    four.act("freeze", 3)
    try:
        job.send_signal(signal.SIGQUIT)
        err = read_until(job, '"event":"hang_report"')
    finally:
        four.act("thaw", 3)
    (event,) = [json.loads(line) for line in err.splitlines() if '"event":"hang_report"' in line]
    assert "host node3 did not answer" in event["text"] and "in loses_its_way" in event["text"], event["text"]
    job.send_signal(signal.SIGTERM)
    job.finish().expect(143)


STANDS_ELSEWHERE = """\
import sys, threading
import numpy as np
import hora.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(4), name='before')
print('ready', flush=True)
def stands_elsewhere():
    sys.stdin.readline()
if hvd.rank() == 1: stands_elsewhere()
hvd.allreduce(np.ones(4), name='late')
print('through', flush=True)
"""


def test_waiting_ranks_and_native_stacks(horarun, tmp_path):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    (tmp_path / "program.py").write_text(STANDS_ELSEWHERE)
    job = horarun.start(
        "-np", 3, "--json", "--stdin", "all", sys.executable, str(tmp_path / "program.py"), stdin=subprocess.PIPE
    )
    job.read_until("ready", 3)
    err = ""
    # The others may not have come to their operation yet when they are asked for the first time.
    for _ in range(20):
        job.send_signal(signal.SIGQUIT)
        lines = read_until(job, re.compile(rb'"event":"hang_report".*\n')).splitlines()
        (err,) = [json.loads(line)["text"] for line in lines if '"event":"hang_report"' in line]
        if re.search(r"^  0,2 ", err, re.M):
            break
    # The row of the awaited rank comes first, and the row of the others names it.
    late = re.search(r"^  1 +no collective; its last was allreduce '\S*before' .* s +(\d+\.\d s) +-$", err, re.M)
    wait = re.search(r"^  0,2 +allreduce '\S*late' +\d+\.\d s +- +rank 1$", err, re.M)
    assert late and wait and late.start() < wait.start(), err
    # Native frames and those of Python in one stack; the runtime's own thread has a name and names.
    lonely = err[err.index("  rank 1:") :]
    assert re.search(r"  at \S*read\S* \(libc\S*\)\n(.*\n)*?.*in stands_elsewhere", lonely), err
    assert re.search(r"Hora's own threads: .*hora-runtime", err) and "libhora" not in err, err
    job.finish(input=b"\n").expect(0)  # the signals have disturbed no rank


def test_other_programs_than_python_have_a_row(horarun):
    job = horarun.start("-np", 2, "sh", "-c", "echo ready; sleep 300")
    job.read_until("ready", 2)
    job.send_signal(signal.SIGQUIT)
    err = read_until(job, "no stacks from")
    assert "ranks 0,1" in err and len(re.findall(r" sh +[RSD]\b", err)) == 2, err
    job.send_signal(signal.SIGTERM)
    job.finish().expect(143)


def test_a_sitecustomize_of_the_environment_still_runs(horarun, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.from_site = 42\n")
    done = horarun.run("-np", 1, "python3", "-c", "print(from_site)", env={"PYTHONPATH": str(tmp_path)}).expect(0)
    assert done.ranks() == {0: ["42"]}


WORKS_IN_SILENCE = """\
import time
import numpy as np
import hora.numpy as hvd
hvd.init()
end = time.monotonic() + 4
# Every rank stops at the same step: the slowest one's clock decides.
while hvd.allreduce(np.array([time.monotonic() < end]), op=hvd.Min)[0]:
    time.sleep(0.05)
"""


def test_a_job_that_says_nothing_and_works_is_not_stalled(horarun, tmp_path):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    (tmp_path / "program.py").write_text(WORKS_IN_SILENCE)
    done = horarun.run(
        "-np", 2, "--on-stall", "kill", "--stall-after", "2500ms", sys.executable, str(tmp_path / "program.py")
    ).expect(0)
    assert "no rank has written" not in done.messages, done
