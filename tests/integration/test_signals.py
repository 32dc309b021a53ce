# SPDX-License-Identifier: Apache-2.0
"""Which signal the ranks get, for each that horarun gets: in the foreground of a terminal, without one, in a script's
background, under nohup; with ranks here and over ssh."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import jobs

SIGNALS = pathlib.Path(__file__).parent / "programs" / "signals.py"
PYTHON = "/usr/bin/python3"
SAVES = {
    signal.SIGINT: ["KeyboardInterrupt", "finally", "atexit"],
    signal.SIGHUP: ["SIGHUP", "finally", "atexit"],
    signal.SIGTERM: ["SIGTERM", "finally", "atexit"],
}


def by_name(number):
    return signal.Signals(number).name


@pytest.fixture(params=["here", "ssh"])
def place(request, shared):
    """The options for two ranks; the program is where they run."""
    if request.param == "here":
        return ["-np", 2]
    return ["-H", request.getfixturevalue("hosts")(2).spec(1)]


def start(horarun, shared, place, *words, **options):
    job = horarun.start(*place, *options.pop("options", ()), PYTHON, "-S", f"{shared}/signals.py", *words, **options)
    job.read_until("ready", 2)
    return job


def expect_signal(job, number):
    """Of a job of two ranks that are ready. SIGQUIT makes a report and ends nothing."""
    job.send_signal(number)
    if number == signal.SIGQUIT:
        assert any(b"where the ranks stand (SIGQUIT)" in line for line in job.process.stderr)
        number = signal.SIGTERM
        job.send_signal(number)
    done = job.finish(timeout=60).expect(128 + number)
    assert sorted(done.ranks().values()) == [SAVES[number]] * 2, done
    assert f"ended by {by_name(number)}" in done.messages, done
    return done


@pytest.mark.parametrize("number", SAVES, ids=by_name)
def test_signals_arrive_by_name(horarun, shared, place, number):
    job = start(horarun, shared, place)
    job.send_signal(number)
    done = job.finish(timeout=60).expect(128 + number)
    assert done.ranks() == {0: SAVES[number], 1: SAVES[number]}, done
    assert f"ended by {by_name(number)}" in done.messages, done
    jobs.expect_nothing_left(job, 15)


@pytest.mark.parametrize("number", [*SAVES, signal.SIGQUIT], ids=by_name)
def test_elastic_jobs(horarun, shared, number):
    place = ["-np", 2, "--min-np", 1, "-H", "localhost:2"]
    expect_signal(start(horarun, shared, place), number)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=by_name)
def test_user_signals_arrive_by_name(horarun, shared, place, number):
    job = start(horarun, shared, place)
    job.send_signal(number)
    done = job.finish(timeout=60).expect(3)
    assert by_name(number) in done.text and "KeyboardInterrupt" not in done.text, done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=by_name)
def test_term_and_kill_follow(horarun, shared, place, number):
    """Of a program that does not end by the first one, nor by the second."""
    stubborn = start(horarun, shared, place, by_name(number), "SIGTERM", options=["--grace", "1s"])
    stubborn.send_signal(number)
    done = stubborn.finish(timeout=60).expect(128 + number)
    expected = [by_name(number), "SIGTERM"]
    assert done.ranks() == {0: expected, 1: expected}, done
    jobs.expect_nothing_left(stubborn, 15)


def test_a_second_one_does_not_wait(horarun, shared, place):
    job = start(horarun, shared, place, "SIGINT", "SIGTERM", options=["--grace", "300s"])
    job.send_signal(signal.SIGINT)
    job.read_until("SIGINT", 2)
    job.send_signal(signal.SIGHUP)  # within the same moment, it would be the same request
    jobs.wait_until(lambda: job.process.poll() is not None or job.send_signal(signal.SIGTERM), "the end", 60)
    job.finish(timeout=60).expect(128 + signal.SIGINT)
    jobs.expect_nothing_left(job, 15)


@pytest.mark.parametrize("way", ["background", "nohup"])
def test_what_a_script_has_made_it_ignore(horarun, shared, way, tmp_path):
    """SIGINT in a script's background, and SIGHUP under nohup, are ignored; SIGQUIT and SIGTERM never are."""
    command = f"{horarun.build}/bin/horarun -np 2 {PYTHON} -S {shared}/signals.py"
    script = f"{'nohup ' if way == 'nohup' else ''}{command} > {tmp_path}/out 2>&1 & echo $!; wait $!; echo $?"
    mark = "mark" + os.urandom(8).hex()
    shell = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "HORA_TEST_MARK": mark},
    )  # fmt: skip
    pid = int(shell.stdout.readline())
    out = tmp_path / "out"
    jobs.wait_until(lambda: out.exists() and out.read_text().count("ready") == 2, "the ranks")
    for ignored in [signal.SIGINT, *([signal.SIGHUP] if way == "nohup" else [])]:
        os.kill(pid, ignored)
    os.kill(pid, signal.SIGQUIT)
    jobs.wait_until(lambda: "where the ranks stand (SIGQUIT)" in out.read_text(), "the report")
    os.kill(pid, signal.SIGTERM)
    assert shell.communicate(timeout=60)[0] == "143\n"
    assert out.read_text().count("SIGTERM\n") == 2 and "KeyboardInterrupt" not in out.read_text(), out.read_text()
    assert jobs.wait_until(lambda: not jobs.processes_of(mark), "the end of everything")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1], ids=by_name)
def test_signals_to_the_agents(horarun, shared, number):
    """As a batch system sends them to all processes of its step, of which the agents are some."""
    job = start(horarun, shared, ["-np", 2])
    for agent in jobs.agents():
        os.kill(agent.pid, number)
    done = job.finish(timeout=60)
    assert done.code != 0
    expected = [by_name(number), "finally", "atexit"] if number == signal.SIGUSR1 else SAVES[number]
    assert expected in done.ranks().values(), done


def test_hora_run_is_interrupted(horarun, shared, tmp_path):
    program = tmp_path / "notebook.py"
    program.write_text(
        "import os, sys, hora\n"
        "def work():\n"
        "    import time\n"
        "    try:\n"
        f"        open('{tmp_path}/began' + os.environ['HOROVOD_RANK'], 'w')\n"
        "        time.sleep(100)\n"
        "    except KeyboardInterrupt:\n"
        f"        open('{tmp_path}/saved' + os.environ['HOROVOD_RANK'], 'w')\n"
        "        raise\n"
        "try:\n"
        "    hora.run(work, np=2)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    mark = "mark" + os.urandom(8).hex()
    # The kernel of a notebook alone is interrupted, not what it has started.
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "HORA_TEST_MARK": mark, "PYTHONPATH": f"{horarun.build}/share/hora/x86_64/bundle/python",
             "PATH": f"{horarun.build}/bin:{os.environ['PATH']}"},
    )  # fmt: skip
    jobs.wait_until(lambda: all((tmp_path / f"began{rank}").exists() for rank in (0, 1)), "the ranks", 60)
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=60)[0]
    assert all((tmp_path / f"saved{rank}").exists() for rank in (0, 1))
    assert jobs.wait_until(lambda: not jobs.processes_of(mark), "the end of everything")
