# SPDX-License-Identifier: Apache-2.0
"""Every system call and every allocation, once each, fails.

Runs a few short jobs while one system call of the launcher, of the local agent (with its shim) or of a rank
returns an error that it can return, or one allocation fails. It first runs each job without a fault, to
count its calls. A run is a (job, program, call, error, number); SEED determines their order, in which system calls
and allocations alternate, and the first RUNS of them run (0: all). After each run it checks that horarun returned
within its deadline, with success and all output or with a documented code and a message, and that no process, file,
socket or shared memory of the job is left.
HORA_CALLS=system leaves out the allocations; HORA_CALLS=ALL selects only those that fail together with all later ones;
HORA_JOBS=echo,files selects jobs, and HORA_ERRORS=EIO,ESTALE errors. After each run of "files" and "cache" it also
checks that no file that is cut has the name of a whole one. A run that fails a check is printed;
`every_call.py only JOB PROGRAM CALL ERROR NUMBER` repeats it.
"""

import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "integration")]
import conftest  # noqa: E402
import jobs  # noqa: E402

HORARUN = os.path.join(conftest.BUILD, "bin", "horarun")
TRACER = os.path.join(conftest.BUILD, "bin", "fault_tracer")
FAIL_MALLOC = os.path.join(conftest.BUILD, "lib", "libhora_fail_malloc.so")
AGENT = os.path.join(conftest.BUILD, "share", "hora", os.uname().machine, "agent", "hora-agent")
DEADLINE_S = 60
LIMITS = ["--lease", "6s", "--grace", "1s", "--start-timeout", "20s"]
ERRORS = {
    "EMFILE": "openat socket socketpair pipe2 epoll_create1 eventfd2 signalfd4 memfd_create timerfd_create accept4 dup3"
    " fcntl pidfd_open",
    "ENOMEM": "mmap brk mprotect clone clone3 fork vfork execve socket epoll_ctl fstat getdents64 openat"
    " recvmsg recvfrom sendto sendmsg mkdir getsockname",
    "EAGAIN": "clone clone3 fork vfork connect",
    "ENOSPC": "write writev pwrite64 ftruncate fsync mkdir mkdirat epoll_ctl rename renameat openat",
    "EDQUOT": "write writev pwrite64 ftruncate fsync mkdir mkdirat rename renameat openat",
    "EROFS": "openat ftruncate mkdir mkdirat rename renameat unlink unlinkat fsync",
    "ESTALE": "openat fstat read write fsync ftruncate getdents64 mkdir mkdirat rename renameat unlink unlinkat",
    "EIO": "fsync read write writev getdents64 readlink openat unlink unlinkat rmdir rename fstat recvmsg recvfrom"
    " sendto sendmsg getcwd chdir fchdir",
    "EPERM": "prctl prlimit64 setsid setpgid kill setsockopt mprotect",
    "EADDRINUSE": "bind listen connect",
    "EINTR": "epoll_wait poll wait4 waitid read write recvmsg sendto connect accept4 openat getrandom",
}
# Interrupted, these say nothing but "again".
MUST_GO_ON = {("epoll_wait", "EINTR"), ("poll", "EINTR"), ("wait4", "EINTR"), ("waitid", "EINTR")}
# A thread or a connection that is refused for the moment is asked for again.
RANKS_MUST_GO_ON = MUST_GO_ON | {("clone", "EAGAIN"), ("clone3", "EAGAIN"), ("connect", "EAGAIN")}
# 1: the program's own end, for instance hora-smoke that cannot meet; 126 and 127: it could not be executed.
CODES = {0, 1, 2, 71, 124, 125, 126, 127}
# Before main() no code can report it nicely; nor can it where the C library ends the program.
NO_WAY_OUT = ("terminate called without an active exception", "Fatal glibc error")


def make_jobs(folder, hosts):
    crowd = len(os.sched_getaffinity(0)) + 1  # more ranks than CPUs: they share a session, each in a group of its own
    made = {
        "echo": (["-np", "2", "sh", "-c", "echo ready"], 2),
        "crowd": (["-np", str(crowd), "sh", "-c", "echo ready"], crowd),
        "files": (
            [
                "-np",
                "1",
                "--output-filename",
                f"{folder}/out",
                "--report",
                f"{folder}/report.json",
                "sh",
                "-c",
                "echo ready",
            ],
            1,
        ),
        "smoke": (["--smoke", "-np", "2"], 0),
        "meet": (["-np", "2", "hora-perf", "barrier", "--iterations", "1"], 0),
    }
    with open(f"{folder}/rsh", "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    os.chmod(f"{folder}/rsh", 0o755)
    made["cache"] = (["-H", "other:1", "--rsh", f"{folder}/rsh", "sh", "-c", "echo ready"], 1)
    if hosts:
        made["ssh"] = (["-H", "node1:1,node2:1", "sh", "-c", "echo ready"], 2)
    only = os.environ.get("HORA_JOBS")
    return {name: job for name, job in made.items() if not only or name in only.split(",")}


class Campaign:
    def __init__(self, folder, jobs_of):
        self.folder, self.jobs = folder, jobs_of
        self.horarun = jobs.Horarun(conftest.BUILD, folder)
        self.tmp, self.log = f"{folder}/tmp", f"{folder}/log"
        os.mkdir(self.tmp)
        self.before = self.left_behind()

    def left_behind(self):
        found = {f"{self.tmp}/{name}" for name in os.listdir(self.tmp)}
        found |= {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if name.startswith("hora")}
        with open("/proc/net/unix", encoding="utf-8") as table:
            found |= set(re.findall(r"@hora\S*", table.read()))
        return found

    def half_files(self, code):
        """What the job named "files" has left under a name as if it was whole, or lacks after a success."""
        wrong = []
        reports = [name for name in os.listdir(self.folder) if name.startswith("report.json")]
        for name in reports:
            try:
                with open(f"{self.folder}/{name}", encoding="utf-8") as file:
                    json.load(file)
            except ValueError as error:
                wrong.append(f"{name} is not whole: {error}")
            os.unlink(f"{self.folder}/{name}")
        if code == 0 and reports != ["report.json"]:
            wrong.append(f"success, and the reports are {reports}")
        try:
            with open(f"{self.folder}/out/rank.0/stdout", encoding="utf-8") as file:
                text = file.read()
        except OSError:
            text = ""
        if code == 0 and text != "[0]<stdout>:ready\n":
            wrong.append(f"success, and the file of the rank has {text!r}")
        shutil.rmtree(f"{self.folder}/out", ignore_errors=True)
        return wrong

    def half_entries(self):
        """What is under its name in the cache of the job "cache", and is not what was sent."""
        wrong = []
        bundle = os.path.join(os.path.dirname(AGENT), "..", "bundle")
        for cache in (f"{self.folder}/cache/hora", f"{self.tmp}/hora-{os.getuid()}"):
            for name in os.listdir(cache) if os.path.isdir(cache) else []:
                if re.fullmatch("agent-[0-9a-f]{64}", name):
                    wrong += [] if same(f"{cache}/{name}", AGENT) else [f"{name} is another one"]
                if not re.fullmatch("[0-9a-f]{64}", name):
                    continue
                for folder, _, files in os.walk(f"{cache}/{name}"):
                    place = os.path.relpath(folder, f"{cache}/{name}")
                    for file in files if place != "." else []:
                        if not same(f"{folder}/{file}", os.path.join(bundle, place, file)):
                            wrong.append(f"{name}/{place}/{file} is not what was sent")
            shutil.rmtree(cache, ignore_errors=True)
        return wrong

    def start(self, job, program, call, error, number):
        arguments = [*LIMITS, *self.jobs[job][0]]
        environment = {"TMPDIR": self.tmp}
        if job == "cache":  # a host that lacks everything; only there does the agent write files
            environment.update(XDG_CACHE_HOME=f"{self.folder}/cache", HORA_FOLLOW="all")
        self.horarun.path = HORARUN
        if call == "malloc":
            environment.update(
                LD_PRELOAD=FAIL_MALLOC,
                HORA_FAIL_PROGRAM={"launcher": "horarun", "agent": "hora-agent"}[program],
                HORA_FAIL_ALLOCATION=str(number),
                HORA_FAIL_LOG=self.log,
            )
            if error == "ALL":
                environment["HORA_FAIL_ALL"] = "1"
        else:
            arguments = [program, call, error, str(number), self.log, "--", self.horarun.path, *arguments]
            self.horarun.path = TRACER
        return self.horarun.start(*arguments, env=environment)

    def read_log(self):
        try:
            with open(self.log, encoding="utf-8") as log:
                return log.read()
        except OSError:
            return ""

    def cases(self):
        """All that can be made to fail."""
        found = []
        for job in self.jobs:
            for program in ("launcher", "agent", "rank"):
                if job == "ssh" and program == "agent":
                    continue  # it lives on another host; the code is the same
                if (job == "meet") != (program == "rank"):
                    continue  # what the others do is the same in any job; their ranks are shells
                if job == "cache" and program == "launcher":
                    continue
                self.start(job, program, "all", "EIO", 0).finish(timeout=DEADLINE_S).expect(0)
                counts = dict(re.findall(r"seen (\S+) (\d+)", self.read_log()))
                errors = {} if os.environ.get("HORA_CALLS") == "ALL" else ERRORS
                for error, calls in errors.items():
                    if error not in os.environ.get("HORA_ERRORS", error).split(","):
                        continue
                    for call in calls.split():
                        found += [(job, program, call, error, n + 1) for n in range(int(counts.get(call, 0)))]
                if os.environ.get("HORA_CALLS") == "system" or (program == "agent" and not is_dynamic(AGENT)):
                    continue
                if program == "rank":
                    continue  # first_cause_test does it, by the library itself
                self.start(job, program, "malloc", "ONE", 0).finish(timeout=DEADLINE_S).expect(0)
                count = int(self.read_log() or 0)
                found += [(job, program, "malloc", error, n + 1) for n in range(count) for error in ("ONE", "ALL")]
        if os.environ.get("HORA_CALLS") == "ALL":
            found = [case for case in found if case[3] == "ALL"]
        return found

    def run(self, case):
        """What is wrong with it, and how it ended."""
        job, program, call, error, _number = case
        if os.path.exists(self.log):
            os.unlink(self.log)
        running = self.start(*case)
        try:
            ended = running.finish(timeout=DEADLINE_S)
        except AssertionError as late:
            return [str(late)], None
        wrong = []
        wanted = self.jobs[job][1]
        log = self.read_log()
        struck = call == "malloc" or "struck" in log
        message = ended.messages
        if ended.code == 0:
            if ended.text.count("ready") < wanted:
                wrong.append(f"success, but output is missing: {ended.text!r}")
        elif call == "malloc" and any(words in message for words in NO_WAY_OUT):
            pass
        elif ended.code not in CODES:
            wrong.append(f"exit {ended.code}")
        elif not struck:
            wrong.append(f"exit {ended.code}, and nothing had failed")
        elif (call, error) in (RANKS_MUST_GO_ON if program == "rank" else MUST_GO_ON):
            wrong.append(f"exit {ended.code}: an interruption is not a failure")
        elif call != "malloc" and re.search(
            f"^ *hora-perf: {os.strerror(getattr(errno, error))}$", message, re.MULTILINE
        ):
            wrong.append(f"exit {ended.code} without a word on what failed")
        elif "horarun: " not in message and "rank" not in message and "loading shared libraries" not in message:
            wrong.append(f"exit {ended.code} without a message")
        if wrong:
            wrong.append(message[-600:])
        try:
            jobs.expect_nothing_left(running, 20, jobs.agents)
        except AssertionError as left:
            wrong.append(str(left))
        if job == "files":
            wrong += self.half_files(ended.code)
        if job == "cache":
            wrong += self.half_entries()
        deadline = time.monotonic() + 5
        while self.left_behind() - self.before and time.monotonic() < deadline:
            time.sleep(0.02)
        left = self.left_behind() - self.before
        if left:
            wrong.append(f"left: {sorted(left)[:5]}")
            self.before |= left
        return wrong, ended.code if struck else "not reached"


def same(one, other):
    with open(one, "rb") as first, open(other, "rb") as second:
        return first.read() == second.read()


def is_dynamic(path):
    done = subprocess.run(["readelf", "-l", path], capture_output=True, text=True)
    return "INTERP" in done.stdout


def main():
    factory = None
    if conftest.hosts_tool.in_world() and "ssh" in os.environ.get("HORA_JOBS", "ssh"):
        factory = conftest.HostFactory()
        factory(2)
    folder = tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    began, codes, broken, done = time.monotonic(), {}, [], 0
    try:
        campaign = Campaign(folder, make_jobs(folder, factory))
        if sys.argv[1] == "only":
            job, program, call, error, number = sys.argv[2:]
            cases = [(job, program, call, error, int(number))]
        else:
            runs, seed = int(sys.argv[1]), int(sys.argv[2])
            cases = campaign.cases()
            print(f"{len(cases)} cases", flush=True)
            random.Random(seed).shuffle(cases)
            calls = [case for case in cases if case[2] != "malloc"]
            allocations = [case for case in cases if case[2] == "malloc"]  # many more: they come in turns
            turns = [case for pair in zip(calls, allocations) for case in pair]
            cases = turns + calls[len(allocations) :] + allocations[len(calls) :]
            cases = cases[:runs] if runs else cases
        minutes = float(os.environ.get("HORA_MINUTES", "1e9"))
        for case in cases:
            if time.monotonic() - began > minutes * 60:
                break
            start = time.monotonic()
            wrong, code = campaign.run(case)
            campaign.horarun.clean_up()
            codes[code] = codes.get(code, 0) + 1
            done += 1
            if wrong:
                broken.append(case)
                print("BROKEN " + " ".join(map(str, case)) + "\n  " + "\n  ".join(wrong), flush=True)
            elif os.environ.get("HORA_VERBOSE"):
                print("ok " + " ".join(map(str, case)) + f": {code} after {time.monotonic() - start:.1f} s", flush=True)
    finally:
        if factory:
            factory.down()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{done} runs in {time.monotonic() - began:.0f} s: {len(broken)} broken")
    print("ends: " + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items(), key=str)))
    sys.exit(1 if broken else 0)


main()
