# SPDX-License-Identifier: Apache-2.0
"""Output that cannot be written: the files of ranks, the report, the events, a timeline. The job does not
end with 0, and one message says what is truncated, and why."""

import array
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time

import pytest

import jobs

LOST = "horarun: not all of the job's record could be written:\n"


def full(path):
    """A file of that name on a disk that is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/full")
    return path


PIPE = 65536  # bytes


def is_full(pipe):
    """Nearly: the last write may have found no room for a whole line."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0] > PIPE - 4096


def refusing(build, word, call, error):
    return {
        "LD_PRELOAD": os.path.join(build, "lib", "libhora_fail_close.so"),
        "HORA_REFUSE": word,
        "HORA_REFUSE_AT": call,
        "HORA_REFUSE_WITH": str(error),
    }


def test_a_file_of_a_rank(horarun, tmp_path):
    """The job and its console output go on; what the others have written is whole."""
    file = full(tmp_path / "rank.1" / "stdout")
    done = horarun.run("-np", 2, "--output-filename", tmp_path, "sh", "-c", "echo one; echo two; echo err >&2").expect(
        125
    )
    assert done.ranks() == {0: ["one", "two"], 1: ["one", "two"]}, done
    assert done.messages.count(LOST) == 1, done
    assert f"  --output-filename: {file}: No space left on device [E_OUTPUT]\n" in done.messages, done
    assert (tmp_path / "rank.1" / "stderr").read_text() == "[1]<stderr>:err\n"
    assert (tmp_path / "rank.0" / "stdout").read_text() == "[0]<stdout>:one\n[0]<stdout>:two\n"


def test_a_disk_that_fills_up(horarun, own_world, tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", tmp_path], check=True)
    try:
        done = horarun.run(
            "-np", 3, "--output-filename", tmp_path, "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; echo end"
        )
        assert done.code == 125 and done.text.count("end\n") == 3, done.messages
        rows = done.messages.split(LOST)[1].splitlines()
        whole = [rank for rank in range(3) if (tmp_path / f"rank.{rank}" / "stdout").read_text().endswith("end\n")]
        assert len(rows) == 3 - len(whole) > 0 and all("No space left on device [E_OUTPUT]" in row for row in rows), (
            done.messages
        )
        assert all(f"rank.{rank}/" not in row for rank in whole for row in rows), done.messages
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_very_many_files(horarun, tmp_path):
    for rank in range(40):
        full(tmp_path / f"rank.{rank:02}" / "stdout")
    done = horarun.run("-np", 40, "--output-filename", tmp_path, "echo", "x").expect(125)
    assert done.messages.count("[E_OUTPUT]") == 32 and "  and 8 more\n" in done.messages, done
    assert done.messages.count("No space left") <= 34, done


def test_a_rank_that_failed_itself(horarun, tmp_path):
    """Its own code wins, and what is lost is said all the same."""
    full(tmp_path / "rank.0" / "stdout")
    report = full(tmp_path / "report.json")
    done = horarun.run(
        "-np", 1, "--output-filename", tmp_path, "--report", report, "sh", "-c", "echo x; exit 7"
    ).expect(7)
    assert (
        done.messages.startswith("warn horarun: --output-filename: writing ") and "exited with code 7" in done.messages
    ), done
    assert done.messages.count(LOST) == 1 and "[E_OUTPUT]" in done.messages and "[E_REPORT]" in done.messages, done


def test_standard_output_of_a_rank_that_was_ended(horarun):
    """The first rank failed before a byte was lost: its code, and the loss."""
    script = (
        "[ $HOROVOD_RANK = 0 ] && exec sh -c 'while [ ! -e ready ]; do sleep 0.1; done; exit 3'; "
        "trap 'echo last; exit 0' TERM; "
        ">ready; while :; do sleep 0.1; done"
    )
    folder = os.path.join(horarun.cwd, "ended")
    os.mkdir(folder)
    with open("/dev/full", "w") as target:
        done = horarun.start("-np", 2, "--wdir", folder, "sh", "-c", script, stdout=target).finish()
    assert done.code == 3 and "standard output: No space left on device [E_OUTPUT]" in done.messages, done


def test_a_report(horarun, tmp_path):
    report = full(tmp_path / "report.json")
    done = horarun.run("-np", 1, "--report", report, "true").expect(125)
    assert done.messages == LOST + f"  --report: writing {report}: No space left on device [E_REPORT]\n", done


def test_what_the_report_and_the_events_say(horarun, tmp_path):
    file = full(tmp_path / "out" / "rank.0" / "stdout")
    done = horarun.run(
        "-np", 1, "--output-filename", tmp_path / "out", "--report", tmp_path / "r.json", "--json", "echo", "x"
    )
    done.expect(125)
    events = [json.loads(line) for line in done.messages.splitlines() if line.startswith('{"schema":')]
    lost = {"what": f"--output-filename: {file}", "reason": "No space left on device", "code": "E_OUTPUT"}
    assert [{name: event[name] for name in lost} for event in events if event["event"] == "lost_record"] == [lost], (
        events
    )
    end = events[-1]
    assert (end["event"], end["exit_code"], end["code"]) == ("job_end", 125, "E_OUTPUT") and str(file) in end[
        "message"
    ], end
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["exit_code"] == 125 and report["cause"] is None and report["lost_records"] == [lost], report
    assert str(file) in report["text"] and report["events"][-1]["event"] == "job_end", report
    assert report["events"][-1]["exit_code"] == 125, report


def test_a_report_that_is_lost_is_reported_to_programs(horarun, tmp_path):
    done = horarun.run("-np", 1, "--report", full(tmp_path / "r.json"), "--json", "true").expect(125)
    end = json.loads(done.messages.splitlines()[-1])
    assert (end["event"], end["exit_code"], end["code"]) == ("job_end", 125, "E_REPORT"), done


@pytest.mark.parametrize("option,code", [(["--json"], 125), ([], 0)])
def test_events_on_a_full_disk(horarun, option, code):
    """Who asks for events wants all of them; horarun's own words to people end no job."""
    with open("/dev/full", "w") as target:
        horarun.start("-np", 1, "--verbose", *option, "true", stderr=target).finish().expect(code)


def test_events_whose_reader_has_gone(horarun):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        horarun.start("-np", 1, "--json", "true", stderr=writer).finish().expect(0)
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "word,call,error,what",
    [
        ("rank.0/stdout", "close", errno.EDQUOT, "Disk quota exceeded [E_OUTPUT]"),
        ("console", "close", errno.ENOSPC, "standard output: No space left on device [E_OUTPUT]"),
        ("report.json", "close", errno.ENOSPC, "report.json: No space left on device [E_REPORT]"),
        ("report.json", "fsync", errno.EIO, "report.json: Input/output error [E_REPORT]"),
    ],
)
def test_what_is_refused_late(horarun, build, tmp_path, word, call, error, what):
    """A network file system, or a quota, takes all bytes and says no when the file is closed."""
    with open(tmp_path / "console", "wb") as console:
        done = horarun.start(
            "-np",
            1,
            "--output-filename",
            tmp_path / "out",
            "--report",
            tmp_path / "report.json",
            "echo",
            "x",
            env=refusing(build, word, call, error),
            stdout=console,
        ).finish()
    assert done.code == 125 and what in done.messages and done.messages.count(LOST) == 1, done
    assert (tmp_path / "report.json").exists() == (word != "report.json")
    assert sorted(os.listdir(tmp_path))[:2] == ["console", "out"] and len(os.listdir(tmp_path)) <= 3


def test_output_that_is_not_awaited(horarun):
    """The ranks have succeeded, the output is not read, and a Ctrl-C says that it will not be."""
    job = horarun.start("-np", 1, "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x")
    os.read(job.process.stdout.fileno(), 1)
    jobs.wait_until(lambda: not job.survivors(), "the rank to end")
    # Until the launcher knows that all is over a Ctrl-C ends the job, with the same code.
    job.send_signal(signal.SIGINT)
    assert job.process.wait(timeout=60) == 128 + signal.SIGINT


def test_job_ended_by_its_user_waits_for_no_reader(horarun, tmp_path):
    """One Ctrl-C is enough, though what the rank has written can go nowhere."""
    written = tmp_path / "written"
    job = horarun.start("-np", 1, "sh", "-c", f"yes | head -c 200000; touch {written}; exec sleep 1000")
    # More than a pipe takes. It reaches the launcher before the rank's end does.
    jobs.wait_until(written.exists, "the rank to have written all")
    job.send_signal(signal.SIGINT)
    assert job.process.wait(timeout=60) == 128 + signal.SIGINT
    messages = job.process.stderr.read().decode()
    assert LOST in messages and "the last output of the ranks: it was not read for 4s [E_OUTPUT]" in messages


@pytest.mark.parametrize("grace", ["--grace=1s", "--grace=20s"])
@pytest.mark.parametrize("program", ["yes | head -c 4000000; exec sleep 1000", "exec yes"])
def test_paused_reader_keeps_no_job_from_its_end(horarun, grace, program):
    """As `less` or Ctrl-S pause it: the agent has no credit for the output that is left."""
    job = horarun.start("-np", 2, grace, "sh", "-c", program)
    before = os.read(job.process.stdout.fileno(), 1)
    jobs.wait_until(lambda: is_full(job.process.stdout), "the output to fill its pipe")
    job.send_signal(signal.SIGTERM)
    assert before and job.process.wait(timeout=60) == 128 + signal.SIGTERM
    messages = job.process.stderr.read().decode()
    assert "the last output of the ranks: it was not read for 4s [E_OUTPUT]" in messages
    assert "did not confirm" not in messages and "E_HOST_LOST" not in messages, messages


def test_job_that_fails_waits_for_a_paused_reader(horarun, tmp_path):
    """The user did not ask to end without the output: all that was written comes."""
    script = '[ "$HOROVOD_RANK" = 1 ] && exec yes; until [ -e $0 ]; do sleep 0.1; done; exit 3'
    job = horarun.start("-np", 2, "--grace", "1s", "sh", "-c", script, tmp_path / "fail")
    jobs.wait_until(lambda: is_full(job.process.stdout), "the output to fill its pipe")
    (tmp_path / "fail").touch()
    jobs.wait_until(lambda: not [p for p in job.survivors() if "agent" not in p.command], "the ranks to end")
    time.sleep(5)  # longer than the launcher waits for a host that does not confirm the end
    done = job.finish().expect(3)
    assert len(done.out) > PIPE and done.out.endswith(b"y\n"), done
    assert "did not confirm" not in done.messages and LOST not in done.messages, done


TRACED = """\
import numpy as np
import hora.numpy as hvd
hvd.init()
for step in range(3):
    hvd.allreduce(np.ones(10, dtype=np.float32), name=f'grad/{step}')
hvd.shutdown()
"""


@pytest.mark.parametrize(
    "name,why", [("full.json", "No space left on device"), ("nowhere/trace.json", "it could not be started")]
)
def test_a_timeline(horarun, tmp_path, name, why):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    full(tmp_path / "full.json")
    (tmp_path / "program.py").write_text(TRACED)

    def run():
        return horarun.run("-np", 2, "--timeline-filename", name, "--wdir", tmp_path, sys.executable, "program.py")

    done = run().expect(125)
    assert (
        done.messages.count(LOST) == 1 and f"  rank 0 on localhost: its timeline: {why} [E_OUTPUT]\n" in done.messages
    ), done
    (tmp_path / "program.py").write_text(TRACED + "raise SystemExit(5)\n")
    assert why in run().expect(5).messages


def test_a_timeline_that_is_refused_late(horarun, build, tmp_path):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    (tmp_path / "program.py").write_text(TRACED)
    done = horarun.run(
        "-np",
        1,
        "--timeline-filename",
        "trace.json",
        "--wdir",
        tmp_path,
        sys.executable,
        "program.py",
        env=refusing(build, "trace.json", "close", errno.EDQUOT),
    ).expect(125)
    assert "rank 0 on localhost: its timeline: Disk quota exceeded [E_OUTPUT]" in done.messages, done
