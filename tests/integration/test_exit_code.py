# SPDX-License-Identifier: Apache-2.0
"""Exit codes of horarun, and its message about the first cause."""

import os
import pathlib
import re
import stat
import subprocess

import pytest


def test_success(horarun):
    assert horarun.run("-np", 2, "true").expect(0).out == b""


def test_every_code_arrives(horarun):
    for code in range(256):
        done = horarun.run("-np", 1, "sh", "-c", f"exit {code}")
        assert done.code == code, done


@pytest.mark.parametrize("signal_name, number", [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("USR1", 10), ("ABRT", 6)])
def test_death_by_signal(horarun, signal_name, number):
    done = horarun.run(
        "-np", 2, "sh", "-c", f'[ "$HOROVOD_RANK" = 0 ] && exec sleep 100; kill -{signal_name} $$'
    ).expect(128 + number)
    assert "rank 1" in done.messages and f"SIG{signal_name}" in done.messages, done


def test_first_failure_wins_and_ends_the_rest(horarun):
    done = horarun.run(
        "-np", 4, "sh", "-c", "case $HOROVOD_RANK in 2) echo oh dear >&2; exit 7;; *) exec sleep 100;; esac"
    ).expect(7)
    assert done.seconds < 30, done
    assert "rank 2" in done.messages and "7" in done.messages and "oh dear" in done.messages, done


def test_success_of_one_does_not_end_the_others(horarun):
    done = horarun.run("-np", 2, "sh", "-c", '[ "$HOROVOD_RANK" = 0 ] || { sleep 1; echo later; }').expect(0)
    assert done.ranks() == {1: ["later"]}, done


def test_last_lines_of_the_first_cause(horarun):
    script = 'for i in $(seq 1 30); do echo "line $i" >&2; done; exit 3'
    done = horarun.run("-np", 1, "sh", "-c", script).expect(3)
    report = done.messages.split("[0]<stderr>:line 30")[1]
    assert "line 30" in report and "line 25" in report, done


def test_program_not_found(horarun):
    done = horarun.run("-np", 2, "no-such-program-anywhere").expect(127)
    assert "no-such-program-anywhere" in done.messages, done


@pytest.mark.parametrize(
    "line, code, words",
    [
        (None, 127, "E_PROGRAM_NOT_FOUND"),
        ("#!/no/such/program", 127, "E_INTERPRETER"),
        ("#!/bin/sh\r", 127, "E_INTERPRETER"),
        ("#!/" + "a" * 300, 126, "E_NOT_EXECUTABLE"),
    ],
    ids=["nothing", "missing", "windows", "endless"],
)
def test_a_program_that_is_called_interpreter(horarun, tmp_path, line, code, words):
    """The error does not depend on the name of the program."""
    script = tmp_path / "interpreter"
    if line:
        script.write_text(line + "\necho hi\n")
        script.chmod(0o755)
    assert words in horarun.run("-np", 1, script).expect(code).messages


def test_an_executable_for_another_c_library(horarun, tmp_path):
    program = tmp_path / "program"
    # The loader that programs of Alpine name, instead of this machine's; the kernel reads up to the NUL.
    loader = re.search(rb"/lib(64)?/ld-linux[^\0]*", pathlib.Path("/bin/true").read_bytes())[0]
    musl = f"/lib/ld-musl-{os.uname().machine}.so.1".encode().ljust(len(loader), b"\0")
    assert len(musl) == len(loader)
    program.write_bytes(pathlib.Path("/bin/true").read_bytes().replace(loader, musl))
    program.chmod(0o755)
    done = horarun.run("-np", 1, program).expect(127)
    assert "E_LOADER" in done.messages and "built for musl" in done.messages, done
    assert "python script.py" not in done.messages, done


def test_program_that_cannot_be_executed(horarun, shared):
    path = os.path.join(shared, "not-executable")
    with open(path, "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod(path, stat.S_IRUSR)
    assert path in horarun.run("-np", 1, path).expect(126).messages


@pytest.mark.parametrize(
    "arguments",
    [
        ["-np", "0", "true"],
        ["-np", "x", "true"],
        ["--no-such-option", "true"],
        ["-np", "2"],
        ["-np", "3", "-H", "localhost:2", "true"],
        ["-H", "a:4", "b:4", "true"],
        ["-H", "a:b", "true"],
    ],
    ids=" ".join,
)
def test_usage(horarun, arguments):
    done = horarun.run(*arguments).expect(2)
    assert done.out == b"" and done.messages.startswith("horarun: "), done


def test_time_limit(horarun):
    done = horarun.run("-np", 2, "--timeout", "1s", "--grace", "1s", "sleep", 100).expect(124)
    assert "--timeout" in done.messages, done


def test_the_longest_times(horarun):
    times = ("--grace", "--lease", "--timeout", "--start-timeout", "--stall-after")
    year = [word for name in times for word in (name, "365d")]
    horarun.run("-np", 2, *year, "--on-stall", "warn", "true").expect(0)


def test_missing_directory(horarun):
    done = horarun.run("-np", 1, "--wdir", "/no/such/folder", "true").expect(125)
    assert "/no/such/folder" in done.messages and "E_CWD" in done.messages, done


def test_np_below_the_slots(horarun):
    done = horarun.run("-np", 2, "-H", "localhost:8", "sh", "-c", "echo $HOROVOD_SIZE").expect(0)
    assert done.ranks() == {0: ["2"], 1: ["2"]}, done


def test_double_dash_ends_the_options(horarun):
    assert horarun.run("-np", 1, "--", "/usr/bin/printf", "%s\\n", "--np").expect(0).ranks() == {0: ["--np"]}


def test_options_behind_the_program_are_its_own(horarun):
    assert horarun.run("-np", 1, "echo", "-np", "5").expect(0).ranks() == {0: ["-np 5"]}


def test_codes_from_hosts(horarun, hosts):
    four = hosts(4)
    done = horarun.run("-H", four.spec(1), "sh", "-c", "case $HOROVOD_RANK in 3) exit 42;; *) exec sleep 100;; esac")
    done.expect(42)
    assert "rank 3 on node4" in done.messages, done
    horarun.run("-H", four.spec(2), "true").expect(0)
    done = horarun.run("-H", four.spec(1), "--wdir", "/no/such/folder", "true").expect(125)
    assert "E_CWD" in done.messages and "node" in done.messages, done
    assert "no-such" in horarun.run("-H", four.spec(1), "no-such").expect(127).messages


def test_as_first_process_of_a_container(horarun, hosts):
    """No init, no terminal: horarun is PID 1 and has to reap and to end like one."""
    hosts(4)
    for code in (0, 3):
        done = subprocess.run(
            [
                "unshare",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                horarun.path,
                "-np",
                "2",
                "sh",
                "-c",
                f"setsid sleep 1000 & exit {code}",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            cwd="/",
        )
        assert done.returncode == code, done


def test_full_standard_output(horarun):
    """Output that could not be written must not look like success."""
    with open("/dev/full", "w") as full:
        done = horarun.start("-np", 1, "echo", "x", stdout=full).finish()
    assert done.code != 0 and "No space left" in done.messages, done
