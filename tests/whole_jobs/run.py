# SPDX-License-Identifier: Apache-2.0
"""Whole jobs, faults among them, under a tool that watches memory:   run.py [valgrind]

HORA_BUILD is a build with sanitizers, or, with the word valgrind, one whose agent is not static: launcher,
shim and agent run under memcheck then. Each job must end as it should, leave no process, and no report
of the tool. (scripts/ci asan, tsan and valgrind run it.)
"""

import glob
import os
import re
import shutil
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "integration"), os.path.join(HERE, "..", "faults")]
import strike  # noqa: E402

import conftest  # noqa: E402
import jobs  # noqa: E402

PYTHON = "/usr/bin/python3"
VALGRIND = sys.argv[1:] == ["valgrind"]
ENDLESS = ["sh", "-c", "echo ready; sleep 600; :"]
REPORT_BEGINS = (
    "ERROR: ",
    "WARNING: ThreadSanitizer",
    "runtime error:",
    "ERROR SUMMARY: [1-9]",
    "definitely lost: [1-9]",
    "indirectly lost: [1-9]",
)
# A descriptor that was open when the program began is none that it leaked.
LEAKED = re.compile(r"Open (?:file descriptor|AF_\w+ socket) (\d+):[^\n]*\n(?!==\d+==\s+<inherited)")


class Launcher(jobs.Horarun):
    def __init__(self, folder):
        super().__init__(conftest.BUILD, folder)
        self.reports = f"{folder}/report"
        self.program = self.path
        options = f"log_path={self.reports}:exitcode=99"
        self.environment = {
            "ASAN_OPTIONS": options,
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={self.reports}",
            "TSAN_OPTIONS": f"{options}:second_deadlock_stack=1",
            "TMPDIR": f"{folder}/tmp",
        }

    def start(self, *arguments, **options):
        options["env"] = {**self.environment, **options.get("env", {})}
        if VALGRIND:
            arguments = [
                "--quiet",
                "--trace-children=yes",
                "--trace-children-skip=/bin/*,/usr/bin/*,/usr/sbin/*,*/hora-smoke",
                "--leak-check=full",
                "--error-exitcode=99",
                "--track-fds=yes",
                f"--log-file={self.reports}.%p",
                self.program,
                *arguments,
            ]
            self.path = shutil.which("valgrind")
        return super().start(*arguments, **options)


def agents():
    """Shims and agents; valgrind's own program is the one that is executed there."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [
        pid for pid in pids if b"hora-agent\0agent\0" in strike.read(f"/proc/{pid}/cmdline") and strike.parent_of(pid)
    ]


def agents_of(job):
    """(shim, agent) of this machine."""
    pids = agents()
    for pid in pids:
        if strike.parent_of(pid) in pids:
            return strike.parent_of(pid), pid
    raise AssertionError("no agent runs")


def ended(horarun, code, *arguments, **options):
    return horarun.run(*arguments, timeout=200, **options).expect(code)


def struck(horarun, codes, strike_it, *arguments, ready=2):
    job = horarun.start(*arguments)
    job.read_until("ready", ready, timeout=120)
    strike_it(job)
    finished = job.finish(timeout=200)
    assert finished.code in codes, f"exit {finished.code}, expected {codes}\n{finished}"
    return finished


def make_jobs(folder):
    two = ["-np", 2, "--lease", "30s" if VALGRIND else "10s", "--grace", "1s"]

    def kill(which):
        return lambda job: os.kill(agents_of(job)[which], signal.SIGKILL)

    def send(*numbers):
        # Those that come sooner behind each other are one request to end.
        return lambda job: [(job.send_signal(n), time.sleep(0.6)) for n in numbers]

    made = {
        "echo": lambda h: ended(h, 0, *two, "echo", "x"),
        "output and report": lambda h: ended(
            h,
            0,
            *two,
            "--output-filename",
            f"{folder}/out",
            "--report",
            f"{folder}/report.json",
            "--json",
            "sh",
            "-c",
            "seq 20000; seq 100 >&2",
        ),
        "stdin": lambda h: ended(h, 0, *two, "--stdin", "all", "cat", input=b"some words\n" * 5000),
        "ship": lambda h: ended(h, 0, *two, "--ship", __file__, "sh", "-c", "test -f run.py"),
        "smoke": lambda h: ended(h, 0, "--smoke", "-np", 2),
        "a rank fails": lambda h: ended(h, 3, *two, "sh", "-c", "test $HOROVOD_RANK = 0 && exit 3; sleep 600"),
        "no such program": lambda h: ended(h, 127, *two, "no-such-program"),
        "a rank crashes": lambda h: ended(
            h, 139, *two, "sh", "-c", "test $HOROVOD_RANK = 0 && kill -SEGV $$; sleep 600"
        ),
        "hidden children": lambda h: ended(
            h, 5, *two, "sh", "-c", "setsid sleep 600 & (trap '' TERM; sleep 601) & exit 5"
        ),
        "the job's time is over": lambda h: ended(h, 124, *two, "--timeout", "2s", *ENDLESS),
        "chaos": lambda h: ended(h, 137, *two, "--chaos", "kill:1@1s", *ENDLESS),
        "Ctrl-C": lambda h: struck(h, (130,), send(signal.SIGINT), *two, *ENDLESS),
        "Ctrl-C, again and again": lambda h: struck(
            h, (130,), send(signal.SIGINT, signal.SIGINT, signal.SIGINT), *two, *ENDLESS
        ),
        "SIGTERM": lambda h: struck(h, (143,), send(signal.SIGTERM), *two, *ENDLESS),
        "SIGQUIT, then Ctrl-C": lambda h: struck(h, (130,), send(signal.SIGQUIT, signal.SIGINT), *two, *ENDLESS),
        "the agent is killed": lambda h: struck(h, (125,), kill(1), *two, *ENDLESS),
        "the shim is killed": lambda h: struck(h, (125,), kill(0), *two, *ENDLESS),
        "the launcher is killed": lambda h: struck(h, (-9,), send(signal.SIGKILL), *two, *ENDLESS),
        "elastic, and no hosts": lambda h: ended(h, 125, "-np", 1, "--host-discovery-script", "exit 3", "true"),
        "doctor": lambda h: ended(h, 0, "--dry-run", *two, "true"),
    }
    if conftest.hosts_tool.in_world():
        made["two hosts"] = lambda h: ended(
            h, 0, "--start-timeout", "150s", "--lease", "100s", "-H", "node1:2,node2:2", "echo", "x"
        )
        made["a host fails"] = lambda h: ended(h, 125, "-H", "node1:1,nowhere.invalid:1", "echo", "x")
    return made


def reports_of(horarun):
    found = []
    for path in sorted(glob.glob(horarun.reports + ".*")):
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        os.unlink(path)
        if path.endswith(".json"):
            continue
        leaked = [fd for fd in LEAKED.findall(text) if int(fd) > 2]
        plain = "\n".join(line for line in text.splitlines() if re.sub(r"^==\d+==", "", line).strip())
        if any(re.search(words, text) for words in REPORT_BEGINS) or re.search(
            r"==\d+== (Invalid|Conditional|Use of|Syscall param|Mismatched|Source and)", text
        ):
            found.append(plain[:6000])
        elif VALGRIND and leaked:
            found.append(f"descriptors {leaked} are open at the end\n{plain[:3000]}")
    return found


def main():
    folder = tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    os.mkdir(f"{folder}/tmp")
    factory = conftest.HostFactory() if conftest.hosts_tool.in_world() else None
    if factory:
        factory(2)
    horarun = Launcher(folder)
    failed = []
    words = os.environ.get("HORA_ONLY", "")
    try:
        for name, act in make_jobs(folder).items():
            if words not in name:
                continue
            start, problems = time.monotonic(), []
            try:
                finished = act(horarun)
                if re.search("Sanitizer|runtime error:", finished.messages):
                    problems.append(finished.messages[-3000:])
                jobs.wait_until(lambda: not agents(), "the agents to end", 90)
                jobs.expect_nothing_left(horarun.started[-1], 30)
            except AssertionError as error:
                problems.append(str(error))
            problems += reports_of(horarun)
            horarun.clean_up()
            print(
                f"{'FAILED' if problems else 'ok'} {name}, {time.monotonic() - start:.1f} s",
                *problems,
                sep="\n  ",
                flush=True,
            )
            failed += [name] if problems else []
    finally:
        if factory:
            factory.down()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(f"failed: {failed}" if failed else 0)


main()
