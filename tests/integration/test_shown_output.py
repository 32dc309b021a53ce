# SPDX-License-Identifier: Apache-2.0
"""README.md shows what a job, a failure and a hang look like: its console blocks run here, and print what they show.

HORA_ACCEPT=1 writes what was printed into the page instead."""

import os
import re
import shlex
import signal
import subprocess
import time

import pytest

import jobs

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "README.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
INTERRUPT = "^\\"  # where Ctrl-\ was pressed


def steps(block):
    """[(command, lines below it)]"""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def blocks():
    with open(PAGE, encoding="utf-8") as file:
        return BLOCK.findall(file.read())


def run(command, build, folder, interrupted):
    """The lines that it prints. An interrupted one is asked for its report once its ranks have printed, and ended."""
    environment = {**os.environ, "PATH": f"{build}/bin:{os.environ['PATH']}"}
    path = folder / "output"
    with open(path, "wb") as out:
        job = subprocess.Popen(
            shlex.split(command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    if interrupted:
        jobs.wait_until(lambda: path.read_bytes().count(b"\n") >= 2, "the lines of two ranks")
        time.sleep(1.5)  # for the rank that goes on to the collective
        job.send_signal(signal.SIGQUIT)
        jobs.wait_until(lambda: path.read_bytes().count(b"<module>") >= 2, "the stacks of two ranks")
        time.sleep(0.5)
        job.send_signal(signal.SIGTERM)
        shown = path.read_text()
    job.wait(60)
    if not interrupted:
        shown = path.read_text()
    lines = shown.replace(f"{folder}/", "").splitlines()
    if interrupted:
        lines.insert(2, INTERRUPT)
    return lines


def comparable(lines):
    """Without what differs from run to run and from system to system: numbers, the kernel's and the C library's words,
    and the order of ranks."""
    text = [line.strip() for line in lines if not line.strip().startswith("at ")]
    text = [re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "N", re.sub(r"\bS \w+$", "S", line))) for line in text]
    return sorted(line for line in text if line.startswith("[")), [line for line in text if not line.startswith("[")]


@pytest.mark.parametrize("number", range(3), ids=["job", "failure", "hang"])
def test_readme_shows_what_is_printed(number, build, tmp_path):
    block = blocks()[number]
    shown = []
    for command, lines in steps(block):
        if command.startswith("cat "):
            (tmp_path / command[4:]).write_text("\n".join(lines) + "\n")
        else:
            printed = run(command.replace("python3", "/usr/bin/python3"), build, tmp_path, number == 2)
            if not os.environ.get("HORA_ACCEPT"):
                assert comparable(printed) == comparable(lines)
            lines = [line.replace("/usr/bin/python3", "python3") for line in printed]
        shown += [f"$ {command}", *lines]
    if os.environ.get("HORA_ACCEPT"):
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(page.replace(block, "\n".join(shown) + "\n"))
