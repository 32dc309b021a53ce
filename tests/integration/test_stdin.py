# SPDX-License-Identifier: Apache-2.0
"""Standard input for rank 0, for all ranks or for none, at the pace of its reader."""

import hashlib
import os
import subprocess

DATA = os.urandom(5_000_000)
DIGEST = hashlib.sha256(DATA).hexdigest()


def test_rank_zero_reads_it(horarun):
    done = horarun.run("-np", 2, "sh", "-c", "sha256sum", input=DATA).expect(0)
    empty = hashlib.sha256(b"").hexdigest()
    assert done.ranks() == {0: [f"{DIGEST}  -"], 1: [f"{empty}  -"]}, done


def test_all_ranks_read_it(horarun):
    done = horarun.run("-np", 3, "--stdin", "all", "sha256sum", input=DATA).expect(0)
    assert done.ranks() == {rank: [f"{DIGEST}  -"] for rank in range(3)}, done


def test_without_a_reader(horarun):
    done = horarun.run("-np", 1, "--stdin", "none", "wc", "-c", input=b"x" * 1000).expect(0)
    assert done.ranks() == {0: ["0"]}, done


def test_rank_that_does_not_read(horarun):
    horarun.run("-np", 2, "sleep", "0.2", input=DATA).expect(0)


def test_rank_that_reads_a_little(horarun):
    done = horarun.run("-np", 1, "head", "-c", "5", input=b"hello world" * 100000).expect(0)
    assert done.ranks() == {0: ["hello"]}, done


def test_a_null_device_is_not_passed_on(horarun):
    done = horarun.run("-np", 1, "readlink", "/proc/self/fd/0", stdin=subprocess.DEVNULL).expect(0)
    assert done.ranks() == {0: ["/dev/null"]}, done


def test_closed_stdin(horarun):
    done = horarun.run("-np", 1, "cat", preexec_fn=lambda: os.close(0)).expect(0)
    assert done.out == b"", done


def test_an_unreadable_input_is_reported(horarun, tmp_path):
    """Ranks that get half of their input, or none, would take it for all of it."""
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        done = horarun.run("-np", 1, "cat", stdin=folder).expect(0)
    finally:
        os.close(folder)
    assert "reading standard input: Is a directory" in done.messages, done
    with open("/dev/null", "wb") as writable:  # as nohup has it
        assert horarun.run("-np", 1, "cat", stdin=writable).expect(0).messages == ""


def test_on_hosts(horarun, hosts):
    done = horarun.run("-H", hosts(4).spec(1), "--stdin", "all", "sha256sum", input=DATA).expect(0)
    assert done.ranks() == {rank: [f"{DIGEST}  -"] for rank in range(4)}, done


def test_a_program_that_comes_to_rank_0_alone(horarun):
    """The others read the end of it at once and are done: rank 0 waits for them, and the error says why."""
    program = b"import hora; hora.init(); print('met', hora.size())"
    job = ("-np", 2, "--gloo-timeout-seconds", 2, "/usr/bin/python3", "-")
    reported = horarun.run(*job, input=program).expect(1).messages
    assert "rank 1 had ended with code 0, while others waited in init()" in reported, reported
    assert "--stdin all" in reported, reported
    assert horarun.run("--stdin", "all", *job, input=program).expect(0).text.count("met 2") == 2
