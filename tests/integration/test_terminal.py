# SPDX-License-Identifier: Apache-2.0
"""On a terminal: Ctrl-C, Ctrl-Z and fg, Ctrl-\\, a window that closes."""

import contextlib
import os
import re
import signal
import termios
import time

import pytest

import jobs
from terminals import Terminal, rows_of


@pytest.fixture
def terminal(horarun, shared):
    mark = "mark" + os.urandom(8).hex()
    opened = Terminal(
        {"PATH": f"{horarun.build}/bin:/usr/bin:/bin", "HORA_TEST_MARK": mark, "HOME": os.environ.get("HOME", "/")},
        shared,
    )
    opened.mark = mark
    yield opened
    with contextlib.suppress(OSError):
        opened.close()
    for process in jobs.processes_of(mark):
        os.kill(process.pid, signal.SIGKILL)


def ranks(terminal):
    return [p for p in jobs.processes_of(terminal.mark) if "tail -f" in p.command and "horarun" not in p.command]


READY = "horarun -np 2 sh -c 'echo rea''dy; exec tail -f /dev/null'\n"  # one process a rank


def states(processes):
    found = set()
    for process in processes:
        with open(f"/proc/{process.pid}/stat") as file:
            found.add(file.read().rpartition(")")[2].split()[0])
    return found


def test_ctrl_c(terminal):
    terminal.type(READY)
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")
    terminal.type("echo code=$?\n")
    terminal.wait_for("code=130")
    assert jobs.wait_until(lambda: not ranks(terminal), "the end of the ranks")


def test_ctrl_c_twice(terminal):
    terminal.type("horarun -np 2 --grace 300s sh -c 'trap \"\" INT TERM; echo rea''dy; exec tail -f /dev/null'\n")
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x03")
    time.sleep(0.3)
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ", seconds=20)
    assert jobs.wait_until(lambda: not ranks(terminal), "the end of the ranks")


def test_ctrl_z_and_fg(terminal):
    terminal.type(READY)
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x1a")
    terminal.wait_for("PROMPT> ")
    jobs.wait_until(lambda: len(ranks(terminal)) == 2 and states(ranks(terminal)) == {"T"}, "the ranks to stop")
    terminal.type("fg\n")
    jobs.wait_until(lambda: "T" not in states(ranks(terminal)), "the ranks to go on")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")
    assert jobs.wait_until(lambda: not ranks(terminal), "the end of the ranks")


def test_stopped_longer_than_the_lease(terminal):
    terminal.type(READY.replace("-np 2", "-np 2 --lease 1s"))
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    terminal.type("\x1a")
    terminal.wait_for("PROMPT> ")
    time.sleep(3)
    assert len(ranks(terminal)) == 2
    terminal.type("fg\n")
    jobs.wait_until(lambda: "T" not in states(ranks(terminal)), "the ranks to go on")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")


def test_closed_window(terminal):
    terminal.type(READY)
    terminal.wait_for("<stdout>:ready")
    terminal.wait_for("<stdout>:ready")
    os.close(terminal.master)
    jobs.wait_until(lambda: not jobs.processes_of(terminal.mark), "the end of everything", seconds=20)


def test_typed_input_reaches_rank_zero(terminal):
    terminal.type("horarun -np 2 sh -c 'read line; echo got $line'\n")
    time.sleep(0.5)
    terminal.type("hello\n")
    terminal.wait_for("[0]<stdout>:got hello")
    terminal.wait_for("PROMPT> ")


READS = "horarun -np 1 sh -c 'echo rea''dy; while read line; do echo got $line; done'"


def shell_is_there(terminal, number):
    """The terminal is the shell's: it runs what is typed."""
    terminal.type(f"echo shell-$(({number}+1))\n")
    terminal.wait_for(f"shell-{number + 1}")


def test_input_after_fg_of_a_job_begun_in_the_background(terminal):
    terminal.type(READS + " &\n")
    terminal.wait_for("[0]<stdout>:ready")
    shell_is_there(terminal, 1)
    terminal.type("fg\n")
    terminal.wait_for("horarun")  # the shell says what it brings to the foreground
    terminal.type("hello\n")
    terminal.wait_for("[0]<stdout>:got hello")
    terminal.type("\x04")
    terminal.wait_for("PROMPT> ")
    shell_is_there(terminal, 2)


def test_input_after_bg_and_fg(terminal):
    terminal.type(READS + "\n")
    terminal.wait_for("[0]<stdout>:ready")
    for turn in ("one", "two"):
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        terminal.wait_for("PROMPT> ")
        terminal.type("bg\n")
        terminal.wait_for("PROMPT> ")
        shell_is_there(terminal, 1)
        terminal.type("fg\n")
        terminal.wait_for("horarun")
        terminal.type(f"{turn}\n")
        terminal.wait_for(f"[0]<stdout>:got {turn}")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")
    terminal.type("echo code=$?\n")
    terminal.wait_for("code=130")


def write(path, text):
    path.write_text(text)
    return path


WAITS = "import os, sys, time\nrank = int(os.environ['HOROVOD_RANK'])\n" + (
    "def wait(path):\n    while not os.path.exists(path): time.sleep(0.02)\n"
)


@pytest.mark.parametrize("tags", [True, False], ids=["tags", "no tags"])
def test_a_prompt_is_shown_before_it_is_answered(terminal, tmp_path, tags):
    program = write(tmp_path / "ask.py", "name = input('name? ')\nprint('hello', name)\n")
    options = "" if tags else "--no-prefix-output "
    terminal.type(f"horarun -np 1 {options}/usr/bin/python3 {program}\n")
    tag = "[0]<stdout>:" if tags else ""
    terminal.wait_for(f"\r\n{tag}name? ")
    terminal.type("bob\n")
    # The echo has ended the row.
    terminal.wait_for(f"bob\r\n{tag}hello bob\r\n")
    terminal.wait_for("PROMPT> ")


def test_a_debugger_can_be_used(terminal, tmp_path):
    program = write(tmp_path / "stop.py", "x = 6\nbreakpoint()\nprint('af' 'ter')\n")
    terminal.type(f"horarun -np 2 sh -c 'test $HOROVOD_RANK = 1 || exec /usr/bin/python3 {program}'\n")
    terminal.wait_for("[0]<stdout>:(Pdb) ")
    terminal.type("x * 7\n")
    terminal.wait_for("\r\n[0]<stdout>:42\r\n[0]<stdout>:(Pdb) ")
    terminal.type("c\n")
    terminal.wait_for("\r\n[0]<stdout>:after\r\n")
    terminal.wait_for("PROMPT> ")


def test_unfinished_lines_tear_no_others(terminal, tmp_path):
    """Both ranks leave lines without an end; each writes whole ones in between."""
    go = tmp_path / "go"
    program = write(
        tmp_path / "dots.py",
        WAITS + f"print('half', rank, end='', flush=True)\nwait('{go}')\n"
        "for i in range(20):\n"
        "    print('\\033[31m.\\033[0m', end='', flush=True)\n"
        "    print('whole', rank, i, file=sys.stderr, flush=True)\n"
        "    time.sleep(0.02)\n"
        "print(' end', rank)\n",
    )
    terminal.type(f"horarun -np 2 /usr/bin/python3 {program}\n")
    begun = ["half 0", "half 1"]
    terminal.wait_for("]<stdout>:half ")
    terminal.wait_for("]<stdout>:half ")
    go.touch()
    rows = rows_of(terminal.wait_for("PROMPT> "))
    for rank in (0, 1):
        whole = [f"[{rank}]<stderr>:whole {rank} {i}" for i in range(20)]
        assert [row for row in rows if f"whole {rank}" in row] == whole, rows
        dots = "\033[31m.\033[0m" * 20
        assert f"[{rank}]<stdout>:{begun[rank]}{dots} end {rank}" in rows, rows


def test_progress_bars_of_two_ranks(terminal, tmp_path):
    """A bar does not hold the end of another rank's line, and its last state is seen while it stands still."""
    program = write(
        tmp_path / "bars.py",
        WAITS + "for i in range(5):\n    print(f'\\r{i * 25:3}% of rank {rank}', end='', file=sys.stderr, flush=True)\n"
        "    time.sleep(0.05)\n"
        f"open('{tmp_path}/bar' + str(rank), 'w')\n"
        f"wait('{tmp_path}/go')\n"
        "if rank: print('a whole line', flush=True)\n"
        "print(file=sys.stderr)\n",
    )
    terminal.type(f"horarun -np 2 /usr/bin/python3 {program}\n")
    terminal.wait_for("100% of rank")
    jobs.wait_until(lambda: (tmp_path / "bar0").exists() and (tmp_path / "bar1").exists(), "both bars to be full")
    (tmp_path / "go").touch()
    rows = rows_of(terminal.wait_for("PROMPT> "))
    assert "[1]<stdout>:a whole line" in rows, rows


def is_raw(terminal):
    return not termios.tcgetattr(terminal.master)[3] & termios.ISIG


SIZE = '/usr/bin/python3 -c "import os; print(tuple(os.get_terminal_size()), [os.isatty(fd) for fd in (0, 1, 2)])"'


@pytest.fixture(params=["local", "ssh"])
def where(request, terminal):
    """The options that choose the hosts of two ranks."""
    if request.param == "local":
        return "-np 2"
    hosts = request.getfixturevalue("hosts")(2)
    return f"-H {hosts.spec(1)} --wdir /"


def test_rank_zero_has_a_terminal(terminal, where):
    terminal.resize(33, 101)
    script = f"test $HOROVOD_RANK = 0 || exec ls -l /proc/self/fd/0; exec {SIZE}"
    terminal.type(f"stty -g; horarun --pty {where} sh -c '{script}'; echo code=$?; stty -g; echo the''-end\n")
    shown = terminal.wait_for("the-end")
    assert "code=0\r\n" in shown, shown
    assert "\n(101, 33) [True, True, True]\r\n" in shown, shown
    assert "[1]<stdout>:" in shown and "/dev/null\r\n" in shown, shown
    assert "\n[0]<" not in shown, shown
    before, after = re.findall(r"(?m)^[0-9a-f]+(?::[0-9a-f]+)+", shown)
    assert before == after  # the settings of the terminal


def test_the_size_follows_the_users(terminal, tmp_path):
    program = write(
        tmp_path / "size.py",
        "import os, signal, time\n"
        "signal.signal(signal.SIGWINCH, lambda *_: print('now', tuple(os.get_terminal_size())))\n"
        "print('ready')\n"
        "while True: time.sleep(0.1)\n",
    )
    terminal.type(f"horarun --pty -np 1 /usr/bin/python3 {program}\n")
    terminal.wait_for("ready")
    terminal.resize(50, 132)
    terminal.wait_for("now (132, 50)")
    terminal.type("\x03")
    terminal.wait_for("KeyboardInterrupt")
    terminal.wait_for("its last lines on its terminal (--pty):")
    terminal.wait_for("PROMPT> ")


def test_ctrl_c_interrupts_the_shell_of_rank_zero_only(terminal, where):
    script = "test $HOROVOD_RANK = 0 || exec tail -f /dev/null; exec /usr/bin/python3 -q"
    terminal.type(f"horarun --pty {where} sh -c '{script}'\n")
    terminal.wait_for(">>> ")
    terminal.type("import time; time.sleep(1000)\r")
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.wait_for("KeyboardInterrupt")
    terminal.wait_for(">>> ")
    terminal.type("6 * 7\r")
    terminal.wait_for("42\r\n>>> ")
    terminal.type("\x04")  # the shell ends; the keys are horarun's again
    jobs.wait_until(lambda: not is_raw(terminal), "the former settings of the terminal")
    terminal.type("\x03")
    terminal.wait_for("PROMPT> ")
    terminal.type("echo code=$?\n")
    terminal.wait_for("code=130")


def test_lines_of_others_next_to_a_debugger(terminal, tmp_path):
    go = tmp_path / "go"
    program = write(
        tmp_path / "stop.py",
        WAITS + "x = 6\n"
        f"if rank: wait('{go}'); print('a line', flush=True); print('another', file=sys.stderr)\n"
        "else: breakpoint()\n"
        "if not rank: print('af' 'ter')\n",
    )
    terminal.type(f"horarun --pty -np 2 --output-filename {tmp_path} /usr/bin/python3 {program}\n")
    terminal.wait_for("(Pdb) ")
    go.touch()
    terminal.wait_for("\r\n[1]<stdout>:a line\r\n")
    terminal.type("x * 7\r")
    terminal.wait_for("42\r\n")
    terminal.wait_for("(Pdb) ")
    terminal.type("c\r")
    terminal.wait_for("after\r\n")
    terminal.wait_for("PROMPT> ")
    assert "[0]<stdout>:after" in (tmp_path / "rank.0" / "stdout").read_text()


@pytest.mark.parametrize("signal_name", ["TERM", "HUP", "INT"])
def test_the_settings_are_restored(terminal, signal_name):
    terminal.type("horarun --pty -np 1 sh -c 'echo rea''dy; exec tail -f /dev/null'\n")
    terminal.wait_for("ready")
    jobs.wait_until(lambda: is_raw(terminal), "the keys to be those of rank 0")
    (launcher,) = [p for p in jobs.processes_of(terminal.mark) if p.command.startswith("horarun --pty")]
    os.kill(launcher.pid, getattr(signal, f"SIG{signal_name}"))
    terminal.wait_for("PROMPT> ")
    assert not is_raw(terminal)
    terminal.type("echo code=$?\n")
    terminal.wait_for(f"code={128 + getattr(signal, f'SIG{signal_name}')}")


def test_the_shell_has_its_settings_while_the_job_is_stopped(terminal):
    terminal.type("horarun --pty -np 1 sh -c 'echo rea''dy; read line; echo got $line'\n")
    terminal.wait_for("ready")
    (launcher,) = [p for p in jobs.processes_of(terminal.mark) if p.command.startswith("horarun --pty")]
    os.kill(launcher.pid, signal.SIGTSTP)
    terminal.wait_for("PROMPT> ")
    shell_is_there(terminal, 1)
    terminal.type("fg\n")
    terminal.wait_for("horarun --pty")
    jobs.wait_until(lambda: is_raw(terminal), "the keys to be those of rank 0")
    terminal.type("hello\r")
    terminal.wait_for("got hello\r\n")
    terminal.wait_for("PROMPT> ")


def test_without_a_terminal_rank_zero_has_one(horarun):
    done = horarun.run("--pty", "-np", 1, "sh", "-c", SIZE, input=b"").expect(0)
    assert done.text == "(80, 24) [True, True, True]\r\n", done


def test_input_from_a_pipe_ends(horarun):
    done = horarun.run("--pty", "-np", 1, "sh", "-c", "stty -echo; cat; echo end", input=b"a line\nhalf").expect(0)
    assert done.text == "a line\r\nhalfend\r\n", done


def test_no_input_ends_at_once(horarun):
    done = horarun.run("--pty", "-np", 1, "--stdin", "none", "sh", "-c", "cat; echo end", timeout=30).expect(0)
    assert done.text == "end\r\n", done


def test_the_last_words_of_rank_zero_are_in_the_message(horarun):
    done = horarun.run("--pty", "-np", 1, "sh", "-c", "echo some words; exit 3", input=b"").expect(3)
    assert done.messages.count("some words") == 1 and "[0]<" not in done.text, done


def test_the_line_of_progress_tears_no_others(terminal, tmp_path):
    """It gives way to each line of a rank, and nothing of it is left."""
    program = write(
        tmp_path / "lines.py",
        WAITS + f"wait('{tmp_path}/go')\nfor i in range(20):\n"
        "    print('line', i, file=sys.stderr if i % 2 else sys.stdout, flush=True)\n    time.sleep(0.02)\n",
    )
    terminal.type(f"TERM=xterm horarun --progress -np 2 /usr/bin/python3 {program}\n")
    terminal.wait_for("s, 2 ranks, CPU ")
    (tmp_path / "go").touch()
    text = terminal.wait_for("PROMPT> ")
    rows = [row.rpartition("\033[K")[2] for row in rows_of(text)]
    for rank in (0, 1):
        whole = [f"[{rank}]<std{'err' if i % 2 else 'out'}>:line {i}" for i in range(20)]
        assert [row for row in rows if row.startswith(f"[{rank}]")] == whole, text
    assert not any("horarun" in row for row in rows), text


def test_unfinished_lines_stay_whole_in_a_pipe(horarun):
    script = "test $HOROVOD_RANK = 0 || { for i in 1 2 3 4 5 6; do echo line; sleep 0.1; done; exit; }; "
    done = horarun.run("-np", 2, "sh", "-c", script + "printf half; sleep 0.7; echo ' and half'").expect(0)
    assert done.out.count(b"half and half") == 1 and done.out.count(b"[0]<stdout>:") == 1, done
