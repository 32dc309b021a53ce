# SPDX-License-Identifier: Apache-2.0
"""A host whose agent lies: the job ends in time and with little memory, with an error that names the host,
and no lie counts as a success or as a message of another host."""

import os

import pytest

import jobs

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
MOST_KIB = 100_000  # of the launcher's memory: about 20 MB, and a frame or two

BROKEN = "host liar: its agent broke the protocol: "
LIES = {
    "exit-of-another-hosts-rank": BROKEN + "exit of a rank: of a rank that is not of this host",
    "also-an-exit-of-another-hosts-rank": BROKEN + "exit of a rank: of a rank that is not of this host",
    "output-of-another-hosts-rank": BROKEN + "output: out of turn",
    "goodbye-without-exits": "E_PROTOCOL",
    "goodbye-at-once": "E_",
    "a-frame-of-4-gigabytes": BROKEN + "output: 4294967295 bytes",
    "an-unknown-frame": BROKEN + "a frame of type 99, which no agent sends",
    "ready-before-hello": BROKEN + "ready: out of turn",
    "malformed-hello": BROKEN + "hello: ",
    "truncated-exit": BROKEN + "exit of a rank: ",
    "noise": "E_",
    "half-a-frame-and-silence": "E_HOST_LOST",
    "output-without-credit": BROKEN + "output: 1048581 bytes",
    "gpu-faults-without-end": BROKEN + "GPU fault: out of turn",
    "large-gpu-faults": BROKEN + "GPU fault: 62914560 bytes",
    "logs-without-end": BROKEN + "log line: out of turn",
    "large-logs": BROKEN + "log line: 62914560 bytes",
    "a-large-failure": BROKEN + "failure: 62914560 bytes",
    "empty-output-without-end": BROKEN + "output: there is none",
    "a-gpu-fault-of-another-hosts-rank": BROKEN + "GPU fault: of a rank that is not of this host",
    "a-failure-in-another-hosts-name": "host liar: host honest: its disk is full",
    "a-failure-of-no-class": BROKEN + "failure: 'code' is not a class of failures",
    "an-exit-code-of-256": BROKEN + "exit of a rank: 'exit_code' is 256",
    "a-signal-of-minus-128": BROKEN + "exit of a rank: 'signal' is -128",
    "an-exit-at-the-end-of-time": BROKEN + "exit of a rank: 'clock_ns' is 9223372036854775807",
    "a-life-without-end": BROKEN + "exit of a rank: 'user_time_us' is 9223372036854775807",
    "a-hello-from-before-time": BROKEN + "hello: 'clock_ns' is -9223372036854775808",
    "two-billion-gpus": BROKEN + "hello: 'gpus' is 2000000000",
    "two-exits": BROKEN + "exit of a rank: twice",
    "a-million-survivors": BROKEN + "goodbye: 1048",
    "more-survivors-than-there-are": BROKEN + "goodbye: 'survivor_pids' has 1 entries",
    "input-that-was-never-sent": BROKEN + "input acknowledgement: of a rank that is not of this host",
    "a-suspension-without-request": BROKEN + "suspension: out of turn",
    "ready-without-an-order": BROKEN + "ready: out of turn",
}

# Runs a command, and writes the most memory that it or a child of it ever had, in KiB, to a file.
MEASURE = """import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file: file.write(str(usage.ru_maxrss))
os._exit(os.waitstatus_to_exitcode(status) % 256)
"""


def run_with_a_liar(horarun, folder, lie, script, *arguments):
    """Rank 0 is on the honest host; rank 1 lives where the liar is. How it ended, and the launcher's memory."""
    path, horarun.path = horarun.path, PYTHON
    try:
        done = horarun.run(
            "-S",
            "-c",
            MEASURE,
            folder / "peak",
            path,
            *arguments,
            "-H",
            "honest:1,liar:1",
            "--transport",
            "command",
            "--rsh",
            f"{PYTHON} -S {HERE}/liar.py {lie} liar",
            "--lease",
            "4s",
            "--grace",
            "1s",
            "--start-timeout",
            "60s",
            "sh",
            "-c",
            script,
            env={"HOME": str(folder), "TMPDIR": str(folder)},
            timeout=100,
        )
    finally:
        horarun.path = path
    return done, int((folder / "peak").read_text())


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_host(horarun, tmp_path, lie):
    script = "[ $HOROVOD_RANK = 0 ] && sleep 2; echo rank $HOROVOD_RANK is done"
    done, peak = run_with_a_liar(horarun, tmp_path, lie, script)
    assert done.code == 125, done
    assert LIES[lie] in done.messages and "host liar" in done.messages, done
    assert not any(
        line.startswith(("forged", "horarun: rank 0")) for line in (done.messages + done.text).splitlines()
    ), done
    assert len(done.err) < 2_000_000 and peak < MOST_KIB, f"{len(done.err)} bytes of messages, {peak} KiB"


def test_what_a_host_logs_steers_no_terminal(horarun, tmp_path):
    done, _ = run_with_a_liar(horarun, tmp_path, "escapes", "echo ok")
    assert done.code == 0 and "liar: ?]0;owned? ?2J ?2J horarun: forged" in done.messages, done
    assert not any((byte < 32 and byte != 10) or byte == 127 for byte in done.err), done.err


def test_a_lie_is_reported_to_programs(horarun, tmp_path):
    done, _ = run_with_a_liar(horarun, tmp_path, "an-exit-code-of-256", "echo ok", "--json")
    assert done.code == 125 and '"event":"job_end"' in done.messages, done
    assert '"code":"E_PROTOCOL"' in done.messages and "host liar: its agent" in done.messages, done


def test_an_elastic_job_takes_no_liar_back(horarun, tmp_path):
    script = "[ $HOROVOD_RANK = 0 ] && sleep 3; echo rank $HOROVOD_RANK is done"
    done, peak = run_with_a_liar(horarun, tmp_path, "gpu-faults-without-end", script, "-np", "2", "--min-np", "1")
    assert done.code == 125 and "rank 0 is done" in done.text, done
    expected_text = BROKEN + "GPU fault: out of turn [E_PROTOCOL]; it takes no further part"
    assert done.messages.count(expected_text) == 1 and peak < MOST_KIB, f"{peak} KiB\n{done}"


def test_a_liar_cannot_make_the_launcher_hold_its_output(horarun, tmp_path):
    """600 MB that were not requested, while the ranks' output is not read."""
    job = horarun.start(
        "-H",
        "honest:1,liar:1",
        "--transport",
        "command",
        "--rsh",
        f"{PYTHON} -S {HERE}/liar.py small-output-without-credit liar",
        "--lease",
        "4s",
        "--grace",
        "1s",
        "sh",
        "-c",
        "sleep 5",
        env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    # The launcher has these words among its own arguments. Its output is not read before all others have ended.
    jobs.wait_until(
        lambda: [p for p in jobs.processes_of("output-without-credit") if p.pid != job.pid], "the way to the liar"
    )
    jobs.wait_until(lambda: not job.survivors(), "the job to be ended by what the liar does", 60)
    with open(f"/proc/{job.pid}/status") as status:  # it still has output that it cannot write
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    done = job.finish().expect(125)
    assert BROKEN + "output: 1005 bytes, where " in done.messages, done
    assert peak < MOST_KIB, f"{peak} KiB"
