# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: campaign.py RUNS SEED      (scripts/ci faults RUNS SEED)

Each seed is a job on real test hosts and one fault at one moment of the job (schedule.py). After each
run it checks that the launcher returned within its deadline and named the right first cause, that no process of the job
is alive on any host (found by a mark in the environment and by the agents' programs), and that no file, socket, shared
memory or cgroup is left. It prints a run that fails a check with its seed and continues. HORA_FAULT="shim kill at 0"
selects the seeds whose text (schedule.py) contains that; it also matches a program, "shared" and "outsiders".
HORA_AT_ONCE=8 divides the runs among eight worlds of test hosts, because a run mostly waits.
"""

import collections
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "integration")]
import schedule as schedules  # noqa: E402
import strike  # noqa: E402

import conftest  # noqa: E402
import jobs  # noqa: E402

PYTHON = "/usr/bin/python3"
SLACK_S = 12  # for a machine with other work
SUM = "sum of one world: "
STRAY_KINDS = ["plain", "session", "orphan", "deaf", "nameless", "threads", "chain"]
# What a job may have made. The launcher's own machine is used by others, too: there it is the folder that
# the job was given.
NAMES = " -o ".join(
    f"-name '{name}'"
    for name in ("hora-job-*", ".incoming-*", ".used-*", ".ship-*", "hora-*-????????????????", ".verified-*.*")
)
ON_A_HOST = "/tmp /var/tmp /dev/shm /root/.cache/hora"
# With a breath between them: what is attacked is the job, and others run next to it.
COLLECTIVES = """import numpy, time, hora.numpy as hvd
hvd.init()
print('ready', flush=True)
while True:
    hvd.allreduce(numpy.ones(1000), name='x')
    time.sleep(0.002)
"""


class Hosts:
    """Four test hosts; those that a fault took away come back."""

    def __init__(self, count=4):
        self.cgroup = JobsCgroup()
        self.factory = conftest.HostFactory()
        self.count = count
        self.set = self.factory(count)

    def init(self, k):
        return self.set._hosts.init_pid(k)

    def act(self, command, *arguments):
        self.set.act(command, *arguments)

    def execute(self, k, script):
        if k == 0:
            return conftest.subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60).stdout
        return self.set.execute(k, "sh", "-c", script, check=False)

    def renew(self):
        """After a fault that is not just taken back."""
        self.factory.down()
        self.set = self.factory(self.count)

    def end(self):
        self.factory.down()
        self.cgroup.remove()


class JobsCgroup:
    """The cgroup v2 in which all jobs of this campaign make theirs, so that those of others are not taken for ours."""

    def __init__(self):
        self.path = None
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            roots = [line.split()[4] for line in file if " - cgroup2 " in line]
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            self.own = next((roots[0] + line[3:].strip() for line in file if roots and line.startswith("0::")), None)
        if self.own:
            self.path = f"{self.own}/hora-test-{uuid.uuid4().hex[:12]}"
            os.mkdir(self.path)
            self.enter(self.path)

    @staticmethod
    def enter(path):
        with open(f"{path}/cgroup.procs", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))

    def jobs(self):
        return (
            {f"{self.path}/{name}" for name in os.listdir(self.path) if name.startswith("hora-")}
            if self.path
            else set()
        )

    def remove(self):
        if not self.path:
            return
        self.enter(self.own)
        deadline = time.monotonic() + SLACK_S
        while True:
            try:
                return os.rmdir(self.path)
            except FileNotFoundError:
                return  # an agent that looks for cgroups of jobs that are over was quicker
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class Outsiders:
    """Who may ask the rendezvous for little, asks for it without end, from the moment it listens."""

    CONNECTIONS, SECONDS = 32, 90

    def __init__(self, launcher):
        self.launcher, self.process, self.next_look = launcher, None, 0

    def look(self):
        if self.process or time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + 0.02
        address = self.rendezvous()
        if address:
            self.process = subprocess.Popen(
                [PYTHON, f"{HERE}/../integration/security/flood.py", address, str(self.CONNECTIONS), str(self.SECONDS)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def rendezvous(self):
        """Where the launcher listens."""
        try:
            held = {os.readlink(f"/proc/{self.launcher}/fd/{fd}") for fd in os.listdir(f"/proc/{self.launcher}/fd")}
        except OSError:
            return None
        for line in strike.read("/proc/net/tcp").decode().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in held:
                host, port = fields[1].split(":")
                host = socket.inet_ntoa(struct.pack("=I", int(host, 16)))
                return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{int(port, 16)}"
        return None

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Job:
    """A horarun whose events and output go to files, to be looked at while it runs."""

    def __init__(self, horarun, folder, arguments):
        self.events_path, self.output_path = os.path.join(folder, "events"), os.path.join(folder, "output")
        reader, writer = os.pipe()
        with open(self.events_path, "wb") as events:
            self.running = horarun.start(*arguments, stderr=events, stdout=writer, env={"TMPDIR": f"{folder}/tmp"})
        os.close(writer)
        os.set_blocking(reader, False)
        self.reader, self.said, self.times = reader, b"", 0
        self.parsed, self.reported_bytes = [], 0
        self.pid, self.mark = self.running.pid, self.running.mark

    def close_reader(self):
        if self.reader is not None:
            os.close(self.reader)
            self.reader = None

    def look(self):
        """Takes one pipe's load of the output: a job that talks without end meets a reader slower than it."""
        if self.reader is None:
            return
        try:
            chunk = os.read(self.reader, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            return self.close_reader()
        self.said = (self.said + chunk)[-200_000:]
        self.times += chunk.count(b"ready")

    def events(self):
        with open(self.events_path, "rb") as file:
            file.seek(self.reported_bytes)
            whole, newline, _ = file.read().rpartition(b"\n")  # the last line may not be written to its end
        for line in whole.split(b"\n"):
            if line.startswith(b'{"schema":'):
                with contextlib.suppress(ValueError):  # cut in two by the launcher's death
                    self.parsed.append(json.loads(line))
        self.reported_bytes += len(whole) + len(newline)
        return self.parsed

    def ended(self):
        self.look()
        return self.running.process.poll() is not None


class Run:
    def __init__(self, hosts, horarun, schedule, folder):
        self.hosts, self.schedule, self.folder = hosts, schedule, folder
        self.broken = []
        if schedule.shared:
            for k in range(1, hosts.count + 1):
                hosts.execute(k, f"mkdir -p {folder}/home /root/.cache; mount --bind {folder}/home /root/.cache")
        self.files_before = {k: self.files(k) for k in (0, *range(1, hosts.count + 1))}
        if schedule.cold:
            for k in range(1, hosts.count + 1):
                hosts.execute(k, "rm -rf /root/.cache/hora /tmp/hora-0")
        if schedule.fault == "disk full":
            size = [64, 600, 2000, 6000][schedule.seed % 4]
            hosts.execute(schedule.victim, f"mkdir -p /root/.cache; mount -t tmpfs -o size={size}k tmpfs /root/.cache")
        self.job = Job(horarun, folder, self.arguments())
        self.outsiders = Outsiders(self.job.pid) if schedule.outsiders else None
        self.striker = strike.Striker(hosts, self.job, schedule)

    def name(self, k):
        return f"node{k}" if k else "localhost"

    def files(self, k):
        """What jobs have made there, and the sockets that wait there."""
        if k == 0:
            return set(self.hosts.execute(0, f"find {self.folder}/tmp -mindepth 1").split()) | self.hosts.cgroup.jobs()
        return set(
            self.hosts.execute(
                k, f"find {ON_A_HOST} -maxdepth 2 \\( {NAMES} \\) 2>/dev/null; grep -o '@hora-[a-z]*' /proc/net/unix; :"
            ).split()
        )

    def arguments(self):
        s = self.schedule
        spec = ",".join(f"{self.name(k)}:{s.slots}" for k in s.hosts)
        options = [
            "--json",
            "-H",
            spec,
            "--lease",
            f"{schedules.LEASE_S}s",
            "--grace",
            f"{schedules.GRACE_S}s",
            "--start-timeout",
            f"{schedules.START_S}s",
        ]
        if s.ship:
            options += ["--ship", f"{HERE}/schedule.py"]
        size = s.slots * len(s.hosts)
        program = {
            "sleep": ["sh", "-c", "echo ready; sleep 600; :"],
            "stray": [
                PYTHON,
                "-S",
                f"{self.folder}/stray.py",
                *(STRAY_KINDS * size)[s.seed % len(STRAY_KINDS) :][:size],
            ],
            "threads": [PYTHON, "-S", f"{self.folder}/stray.py", "threads"],
            "chain": [PYTHON, "-S", f"{self.folder}/stray.py", "chain"],
            "collectives": [PYTHON, "-c", COLLECTIVES],
            "talk": ["sh", "-c", "echo ready; while :; do echo 'some words that are of no use at all'; done"],
            "quick": ["true"],
            "chatter": [PYTHON, "-S", f"{self.folder}/chatter.py", "2000000"],
        }[s.program]
        return options + program

    # --- the moment
    def ended(self):
        if self.outsiders:
            self.outsiders.look()
        return self.job.ended()

    def wait_for(self, reached, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.ended():
            if reached():
                return True
            time.sleep(0.002)
        return False

    def reach_point(self):
        kind, *detail = self.schedule.point
        victim = self.name(self.schedule.victim)
        size = self.schedule.slots * len(self.schedule.hosts)

        def said(times):
            return lambda: self.job.times >= times

        if kind == "time":
            self.wait_for(lambda: False, detail[0] / 1000)
        elif kind == "stage":
            self.wait_for(
                lambda: any(
                    e["event"] == "stage" and e["stage"] == detail[0] and e["host"] == victim for e in self.job.events()
                ),
                5,
            )
        elif kind == "rank_start":
            self.wait_for(lambda: any(e["event"] == "rank_start" for e in self.job.events()), 20)
        elif kind == "said":
            self.wait_for(said(1 if detail[0] == 1 else size), 20)
        else:
            self.wait_for(said(1), 20)
            strike.send(self.job.pid, signal.SIGINT)
            self.wait_for(lambda: False, detail[0] / 1000)
        self.wait_for(lambda: False, self.schedule.delay_ms / 1000)

    # --- the end
    def wait_for_end(self, seconds):
        deadline = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < deadline:
            self.striker.heal_if_due()
            time.sleep(0.005)
        return self.job.ended()

    def timeout(self):
        started = any(e["event"] == "rank_start" for e in self.job.events())
        until = schedules.LEASE_S if started else schedules.START_S
        return until + schedules.GRACE_S + 3 + SLACK_S

    def may_go_on(self):
        """An sshd that ends before it has said who it is counts as busy, and is asked again."""
        victim = self.name(self.schedule.victim)
        asked_again = any(
            e["event"] == "stage" and e["host"] == victim and "another try" in e["detail"] for e in self.job.events()
        )
        return self.schedule.fault in schedules.MAY_GO_ON or (self.schedule.fault == "session kill" and asked_again)

    def live(self):
        self.reach_point()
        was_over = self.job.ended()
        self.striker.strike()
        self.hit = self.striker.struck and not was_over
        fault = self.schedule.fault
        ends = self.schedule.program not in schedules.ENDLESS
        lasting = self.striker.heal_at is not None and fault in ("launcher stop", "agent stop")
        if self.hit and (not self.may_go_on() or ends):
            over = self.wait_for_end(self.timeout() + (25 if fault == "launcher stop" else 0))
        else:
            over = self.wait_for_end(26 + self.timeout() if lasting else self.schedule.heal_ms / 1000 + 1)
        self.asked = not over
        if not over:
            if self.hit and not self.may_go_on():
                self.broken.append(f"the launcher did not return within {self.timeout()} s")
            self.striker.heal()
            strike.send(self.job.pid, signal.SIGINT)
            if not self.wait_for_end(schedules.LEASE_S + schedules.GRACE_S + 3 + SLACK_S):
                self.broken.append("the launcher did not return when it was asked to end")
                self.job.running.process.kill()
        self.code = self.job.running.process.wait(10)
        self.judge_cause()
        self.judge_survivors()
        self.judge_files()

    def text(self):
        """What the launcher said at the end."""
        end = next((e for e in self.job.events() if e["event"] == "job_end"), None)
        return end["message"] if end else strike.read(self.job.events_path).decode(errors="replace")[-2000:]

    def judge_cause(self):
        s, code = self.schedule, self.code
        text = self.text()
        wrong = self.broken.append
        if s.fault in ("launcher kill", "launcher memory") and code < 0:
            return
        if s.fault.startswith("launcher "):
            # Agents end their ranks one by one when the lease of a stopped launcher is over: some ranks lose others.
            lost = (
                (1, 137, 134) if s.program == "collectives" and s.fault in ("launcher stop", "launcher pause") else ()
            )
            if code not in (0, 130, 125, 71, 124, *lost) and s.program in schedules.ENDLESS:
                wrong("another code")
            return
        ended_before = s.point[0] == "ending"
        endless = s.program in schedules.ENDLESS
        if code == 0:
            # The shell whose sleep was killed goes on to its end.
            if endless and not (s.fault == "child kill" and s.program == "sleep"):
                wrong("success of a job without end")
            return
        if code == 130 and (self.asked or ended_before or s.fault.startswith("user INT") or s.fault == "user QUIT INT"):
            return
        if not self.hit:
            return wrong("no fault, and no success")
        victim = self.name(s.victim)
        if s.fault.startswith("user"):
            number = getattr(signal, "SIG" + s.fault.split()[1])
            # Before it has begun anything horarun ends as any program does.
            if code != 128 + number and not (code == -number and not self.job.events()):
                wrong("another signal")
        elif s.fault == "reader gone":
            if code not in (141, 125):
                wrong("the reader had gone")
        elif s.fault in ("rank kill", "rank segv"):
            wanted = 137 if s.fault == "rank kill" else 139
            if code != wanted or f"on {victim}" not in text:
                wrong("a rank was killed")
        elif s.fault in ("child kill", "rank pause"):
            if f"on {victim}" not in text:
                wrong("a rank's child was killed")
        elif victim not in text:
            wrong(f"{victim} is not named")
        elif code == 126 and "E_NO_PROCESS" in text and s.fault in ("agent memory", "agent files"):
            pass
        elif code == 124 and "E_START_TIMEOUT" in text and s.fault.endswith((" stop", "freeze")):
            pass  # an agent that is stopped before it has greeted has no lease yet
        elif code in (127, 139) and s.fault == "agent memory":
            pass  # ranks inherit the limit: the kernel ends a program that it can execute but not load
        elif code != 125 and not (code in (1, 137, 134) and s.program == "collectives"):
            wrong("another code")

    def judge_survivors(self):
        s = self.schedule
        self.striker.heal()
        if s.fault in ("freeze",):
            self.hosts.act("thaw", s.victim)
        # A stopped agent is ended by its shim 10 s after the grace.
        timeout = (
            schedules.LEASE_S
            + schedules.GRACE_S
            + 3
            + SLACK_S
            + (30 if s.fault in ("cut", "cut and heal") else 10 if "stop" in s.fault or s.fault == "freeze" else 0)
        )
        left = []

        def none():
            left[:] = [p for p in self.job.running.survivors() + jobs.agents() if p.pid != os.getpid()]
            return not left

        deadline = time.monotonic() + timeout
        while not none() and time.monotonic() < deadline:
            time.sleep(0.02)
        if left:
            self.broken.append(f"{len(left)} processes live on: {left[:6]}")
            for process in left:
                if process.pid:
                    strike.send(process.pid, signal.SIGKILL)

    def judge_files(self):
        s = self.schedule
        for k, before in self.files_before.items():
            # A machine that lost power has what its disk had; and all others have it, where that is one for all. Its
            # cgroup goes with it, which these test hosts have from the one kernel of all.
            if s.fault == "crash" and (s.shared or k == s.victim):
                continue
            gone = self.hosts.cgroup.jobs() if s.fault == "crash" else set()

            # A login shell that ends with its connection removes what it was sent.
            def left():
                return self.files(k) - before - gone

            deadline = time.monotonic() + SLACK_S
            while left() and time.monotonic() < deadline:
                time.sleep(0.1)
            left = left()
            # A shell that is killed by force cannot clean up behind itself: documented.
            if s.fault in (
                "session kill",
                "cut",
                "cut and heal",
                "freeze",
                "agent kill",
                "launcher kill",
                "launcher memory",
            ):
                left = {path for path in left if "/.ship-" not in path}
            if left:
                self.broken.append(f"left on {self.name(k)}: {sorted(left)[:6]}")
                self.hosts.execute(k, "rm -rf " + " ".join(path for path in left if path.startswith("/")))

    def clean_up(self):
        s = self.schedule
        self.job.close_reader()
        if self.outsiders:
            self.outsiders.stop()
        for path in self.hosts.cgroup.jobs():
            with contextlib.suppress(OSError):
                os.rmdir(path)
        if s.fault == "disk full":
            self.hosts.execute(s.victim, "umount -l /root/.cache")
        if s.fault == "cut" and self.striker.struck:
            self.hosts.act("heal", s.victim)
        if (s.fault in ("crash",) and self.striker.struck) or self.hosts.set.faulty:
            self.hosts.renew()
        elif s.shared:
            for k in range(1, self.hosts.count + 1):
                self.hosts.execute(k, "umount -l /root/.cache")


def say(line):
    """At once, since other worlds write to the same pipe."""
    sys.stdout.flush()
    os.write(1, (line + "\n").encode())


def share(worlds, runs, seed):
    """The same campaign in several worlds at once, each with its part of the seeds."""
    reader, writer = os.pipe()
    part = -(-runs // worlds)
    children = [
        subprocess.Popen(
            [
                f"{HERE}/../integration/in-a-world",
                PYTHON,
                __file__,
                str(min(part, runs - i * part)),
                str(seed + i * part),
            ],
            stdin=subprocess.DEVNULL,
            stdout=writer,
        )
        for i in range(worlds)
        if i * part < runs
    ]
    os.close(writer)
    began, sums = time.monotonic(), []
    with open(reader, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(SUM):
                sums.append(json.loads(line[len(SUM) :]))
            else:
                print(line, end="", flush=True)
    codes = [child.wait() for child in children]

    def total(name):
        return sum((collections.Counter(one[name]) for one in sums), collections.Counter())

    report(
        sum(one["done"] for one in sums),
        seed,
        time.monotonic() - began,
        [each for one in sums for each in one["broken"]],
        total("codes"),
        total("faults"),
    )
    if len(sums) < len(children):
        print(f"{len(children) - len(sums)} worlds ended before their time")
    return max(codes)


def report(done, seed, seconds, broken, codes, faults):
    print(
        f"{done} runs from seed {seed} in {seconds:.0f} s ({done / seconds * 60:.0f} in a minute): "
        f"{len(broken)} broken {broken}"
    )
    print(
        "exit codes: "
        + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items(), key=lambda item: int(item[0])))
    )
    print("faults: " + ", ".join(f"{name}: {count}" for name, count in sorted(faults.items())))


def main():
    runs, seed = int(sys.argv[1]), int(sys.argv[2])
    minutes = float(os.environ.get("HORA_MINUTES", "1e9"))
    wanted = os.environ.get("HORA_FAULT", "")
    if not conftest.hosts_tool.in_world():
        try:
            conftest.hosts_tool.check()
        except conftest.hosts_tool.HostsError as error:
            sys.exit(f"no test hosts here: {error}")
        sys.exit(share(int(os.environ.get("HORA_AT_ONCE", "1")), runs, seed))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # a shell's background jobs, and theirs, ignore these
    folder = tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    shutil.copytree(os.path.join(HERE, "..", "integration", "programs"), folder, dirs_exist_ok=True)
    os.mkdir(f"{folder}/tmp")
    hosts = Hosts()
    horarun = jobs.Horarun(conftest.BUILD, folder)
    began, done, broken = time.monotonic(), 0, []
    faults, codes = collections.Counter(), collections.Counter()
    try:
        for number in range(seed, seed + runs):
            if time.monotonic() - began > minutes * 60:
                break
            schedule, start = schedules.make(number), time.monotonic()
            if wanted not in str(schedule):
                continue
            run = Run(hosts, horarun, schedule, folder)
            try:
                run.live()
            finally:
                run.clean_up()
                horarun.clean_up()
            done += 1
            faults[schedule.fault + ("" if run.hit else " (too late)")] += 1
            codes[run.code] += 1
            if run.broken:
                broken.append(number)
                say(
                    f"BROKEN {schedule}\n  "
                    + "\n  ".join([*run.broken, f"exit {run.code}: {run.text().strip()[:700]!r}"])
                )
            elif os.environ.get("HORA_VERBOSE"):
                say(f"ok {schedule}: exit {run.code} after {time.monotonic() - start:.1f} s")
    finally:
        hosts.end()
        shutil.rmtree(folder, ignore_errors=True)
    say(SUM + json.dumps({"done": done, "broken": broken, "codes": codes, "faults": faults}))
    sys.exit(1 if broken else 0)


main()
