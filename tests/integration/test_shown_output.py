# SPDX-License-Identifier: Apache-2.0
"""Pages show sessions at a terminal, such as a job, a failure and a hang in README.md. Here they are typed, and print
what the pages show.

A session is a console block that begins with its files (`$ cat FILE`). `^C` and `^\\` stand for the keys.
HORA_ACCEPT=1 writes what was printed into the pages instead."""

import contextlib
import os
import pathlib
import re
import signal
import tempfile
import time

import pytest

import jobs
from terminals import Terminal, rows_of

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
PAGES = ["README.md", "docs/howto/watch-a-job.md", "docs/howto/preemption.md"]
SESSION = re.compile(r"^```console\n(\$ cat .*?)^```$", re.M | re.S)
KEYS = {"^C": "\x03", "^\\": "\x1c"}


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def sessions():
    for page in PAGES:
        for number, block in enumerate(SESSION.findall(read(page))):
            yield pytest.param(page, block, id=f"{page}: {number}")


def steps(block):
    """[(command, lines below it)]"""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def lines_of(text):
    return [row for row in rows_of(text) if row]


def same_everywhere(lines):
    """Without the kernel's and the C library's words."""
    return [line for line in lines if not line.strip().startswith("at ")]


def type_and_watch(terminal, command, below):
    """The lines that appear below the command. A key is typed after as many lines as on the page."""
    terminal.type(command + "\n")
    terminal.wait_for(command + "\r\n")
    shown, before = [], []
    for line in below:
        if line not in KEYS:
            before.append(line)
            continue
        awaited = len(same_everywhere(before))
        jobs.wait_until(
            lambda awaited=awaited: len(same_everywhere(lines_of(terminal.read()))) >= awaited,
            f"{awaited} lines before {line}",
        )
        time.sleep(1.5)  # for a rank that goes on to the collective
        terminal.type(KEYS[line])
        shown += [*lines_of(terminal.wait_for(line)), line]
        before = []
    return shown + lines_of(terminal.wait_for("PROMPT> ", 60))


def comparable(lines):
    """Without what differs from run to run and from system to system: numbers, and the order and repetitions of what
    ranks print."""
    text = []
    for line in same_everywhere(lines):
        line = re.sub(r"\bS \w+$", "S", line.strip())
        line = re.sub(r"\d+(\.\d+)?[kMGT%]?", "N", line)
        text.append(re.sub(r"\s+", " ", line.replace("NmNs", "Ns")))
    return {line for line in text if line.startswith("[")}, [line for line in text if not line.startswith("[")]


@pytest.fixture
def folder():
    """With a path so short that a report does not cut it."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="s.") as name:
        yield pathlib.Path(name)


@pytest.fixture
def terminal(build, folder):
    mark = "mark" + os.urandom(8).hex()
    jobs.MARKS.append(mark)
    environment = {"PATH": f"{build}/bin:/usr/bin:/bin", "HOME": str(folder), "HORA_TEST_MARK": mark}
    # Launchers of other worlds of tests share the folder of sockets: this shell sees its own alone.
    sockets = f"/tmp/hora-{os.geteuid()}"
    alone = f'mkdir -p -m 700 {sockets}; mount -t tmpfs -o mode=700 tmpfs {sockets}; exec "$@"'
    in_world = os.environ.get("HORA_HOSTS_WORLD") == "1"
    opened = Terminal(environment, folder, ("unshare", "--mount", "sh", "-c", alone, "sh") if in_world else ())
    opened.resize(40, 80)
    yield opened
    with contextlib.suppress(OSError):
        opened.close()
    for process in jobs.processes_of(mark):  # a detached job outlives its terminal
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("page, block", sessions())
def test_pages_show_what_is_printed(page, block, terminal, folder):
    shown = []
    for command, lines in steps(block):
        if command.startswith("cat "):
            (folder / command[4:]).write_text("\n".join(lines) + "\n")
        else:
            printed = [line.replace(f"{folder}/", "") for line in type_and_watch(terminal, command, lines)]
            if not os.environ.get("HORA_ACCEPT"):
                assert comparable(printed) == comparable(lines)
            lines = printed
        shown += [f"$ {command}", *lines]
    if os.environ.get("HORA_ACCEPT"):
        text = read(page).replace(block, "\n".join(shown) + "\n")
        with open(os.path.join(ROOT, page), "w", encoding="utf-8") as file:
            file.write(text)
