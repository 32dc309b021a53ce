# SPDX-License-Identifier: Apache-2.0
"""Jobs inside allocations of LSF, jsrun, PBS, Torque and Volcano that are none: stand-ins for the engines' commands go
by ssh to the test hosts (tests/support/engines/stand-ins). The variables are those of the engines' documentation."""

import collections
import glob
import hashlib
import os
import re
import signal
import subprocess

import pytest

import jobs

STAND_INS = os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines", "stand-ins")
SLOTS = {"node1": 3, "node2": 1, "node3": 2}
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
WAYS = {  # engine -> its name for people, and how agents start
    "lsf": ("LSF job 7", "blaunch"),
    "jsrun": ("jsrun (LSF) job 7", "jsrun"),
    "openpbs": ("PBS, Torque job 9.server", "pbs_tmrsh"),
    "torque": ("PBS, Torque job 9.server", "pbsdsh"),
    "pbs": ("PBS, Torque job 9.server", "ssh"),
    "volcano": ("Volcano (Kubernetes)", "ssh"),
}
STEPS = ("jsrun", "openpbs", "torque")  # agents dial


class Allocation:
    def __init__(self, engine, folder, hosts):
        self.engine, self.folder, self.hosts = engine, folder, hosts
        self.lines = [name for name, slots in SLOTS.items() for _ in range(slots)]
        list_file = self._write("hosts", "".join(f"{line}\n" for line in self.lines))
        self.answer = self._write("answer", "")
        self.output = self._write("output", "")
        self.environment = {
            "PATH": ":".join([*(os.path.join(STAND_INS, each) for each in self._commands()), PATH]),
            "XDG_CACHE_HOME": os.path.join(folder, "cache"),  # hosts see it, as they see a home folder
            "STAND_IN_ANSWER": self.answer,
            "STAND_IN_OUTPUT": self.output,
        }
        if engine in ("lsf", "jsrun"):
            if engine == "jsrun":
                self._write("hosts", "launch\n" + "".join(f"{line}\n" for line in self.lines))
            self.environment |= {"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": list_file}
        elif engine == "volcano":
            self.environment |= {"MPI_HOST": ",".join(self.lines), "VC_TASK_INDEX": "0"}
        else:
            self.environment |= {"PBS_JOBID": "9.server", "PBS_NODEFILE": list_file, "PBS_ENVIRONMENT": "PBS_BATCH"}

    def _commands(self):
        return {"jsrun": ["jsrun", "lsf"], "pbs": [], "volcano": []}.get(self.engine, [self.engine])

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def say(self, text):
        self._write("answer", text)

    def files(self):
        """What the tasks were given."""
        return glob.glob(os.path.join(self.environment["XDG_CACHE_HOME"], "hora", ".ship-*"))


@pytest.fixture
def allocation(hosts, shared):
    present = hosts(len(SLOTS))
    folder = os.path.join(shared, "allocation")
    os.makedirs(folder, exist_ok=True)
    for k in range(1, len(SLOTS) + 1):
        present.execute(k, "sh", "-c", "rm -rf ~/.cache/hora")
    return lambda engine: Allocation(engine, folder, present)


def start(horarun, held, *arguments, **options):
    environment = {**held.environment, **options.pop("env", {})}
    return horarun.start(*arguments, env=environment, **options)


every_engine = pytest.mark.parametrize("engine", WAYS)


@every_engine
def test_ranks_are_where_the_slots_are(horarun, allocation, engine):
    held = allocation(engine)
    done = start(horarun, held, "hostname").finish().expect(0)
    by_host = collections.Counter(line for lines in done.ranks().values() for line in lines)
    assert by_host == SLOTS, done
    title, way = WAYS[engine]
    expected_text = f"horarun: {title}: 6 slots on 3 hosts (node1:3,node2:1,node3:2); agents start by {way}\n"
    assert done.messages == expected_text, done  # and not that some hosts had to be reached in another way
    assert not held.files()
    with open(held.output) as file:
        assert file.read() == ""


@pytest.mark.parametrize("engine", ["lsf", *STEPS])
def test_a_collective_job_on_some_of_the_hosts(horarun, allocation, engine):
    done = start(horarun, allocation(engine), "-np", 4, "--smoke").finish().expect(0)
    assert "all ok" in done.text, done


@every_engine
def test_exit_code_and_signal(horarun, allocation, engine):
    held = allocation(engine)
    third = "[ $HOROVOD_RANK = 3 ] || exec sleep 1000; "
    assert start(horarun, held, "sh", "-c", third + "exit 7").finish().code == 7
    assert start(horarun, held, "sh", "-c", third + "kill -9 $$").finish().code == 137
    assert not held.files()


@pytest.mark.parametrize("engine", ["lsf", *STEPS])
def test_what_a_rank_prints_and_reads_is_whole(horarun, allocation, engine):
    """32 MiB in, 20 MB out."""
    data = os.urandom(32 << 20)
    program = "sha256sum; head -c 20000000 /dev/zero; echo"
    held = allocation(engine)
    job = start(horarun, held, "--no-prefix-output", "-np", 1, "sh", "-c", program, stdin=subprocess.PIPE)
    out = job.finish(data).expect(0).out
    assert out == hashlib.sha256(data).hexdigest().encode() + b"  -\n" + bytes(20_000_000) + b"\n"


@every_engine
def test_a_launcher_that_is_killed_leaves_nothing(horarun, allocation, engine):
    job = start(horarun, allocation(engine), "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", sum(SLOTS.values()))
    job.send_signal(signal.SIGKILL)
    job.finish()
    jobs.expect_nothing_left(job, also=jobs.agents)


@pytest.mark.parametrize("engine", STEPS)
def test_the_place_of_a_task_is_not_the_ranks(horarun, allocation, engine):
    script = "env | grep -E '^(JSM_|HORA_STEP_HOST=)' || echo none"
    done = start(horarun, allocation(engine), "sh", "-c", script).finish().expect(0)
    assert {line for lines in done.ranks().values() for line in lines} == {"none"}, done


@pytest.mark.parametrize("engine", STEPS)
def test_no_secret_where_others_look(horarun, allocation, engine):
    """Neither what proves to the launcher that a task is asked for, nor the variables of the job."""
    held = allocation(engine)
    held.hosts.act("freeze", 3)  # so that its task has not come yet
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000", env={"HORA_WISH": "s3cr3t"})
    try:
        words = jobs.wait_until(lambda: [p for p in held.files() if p.endswith("-words")], "the tasks' file")
        assert [os.stat(path).st_mode & 0o777 for path in words] == [0o600]
    finally:
        held.hosts.act("thaw", 3)
    job.read_until("up", sum(SLOTS.values()))
    assert not held.files()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        command = jobs.shown_by(entry, "cmdline")
        assert b"hora://" not in command and b"s3cr3t" not in command, command
    job.send_signal(signal.SIGINT)
    job.finish().expect(130)


@pytest.mark.parametrize("engine, other", [("jsrun", "blaunch"), ("openpbs", "ssh"), ("torque", "ssh")])
def test_hosts_that_do_not_share_a_folder(horarun, allocation, tmp_path, engine, other):
    """Each host has a /tmp of its own. They are reached one by one, and one line says why."""
    held = allocation(engine)
    held.environment["XDG_CACHE_HOME"] = "/tmp/of-this-machine"
    done = start(horarun, held, "hostname").finish().expect(0)
    by_host = collections.Counter(line for lines in done.ranks().values() for line in lines)
    assert by_host == SLOTS, done
    assert done.messages.count("not all hosts are reached by one step") == 1, done
    # On a busy machine the wait for the tasks may end before the command that starts them.
    why = "does not see the folder" if engine == "jsrun" else f"{WAYS[engine][1]} ended with status 1|has not dialled"
    assert re.search(why, done.messages), done


def kill_commands(job, name):
    """The engine's, below horarun."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        fields = jobs._stat(f"/proc/{entry}")
        if fields and int(fields[1]) == job.pid and name in jobs.shown_by(entry, "cmdline"):
            os.kill(int(entry), signal.SIGKILL)
            return
    raise AssertionError(f"horarun has no child {name}")


@pytest.mark.parametrize(
    "engine, command, answer, words",
    [
        ("lsf", b"ssh", "EXIT  TERM_OWNER: job killed by owner\n", "job 7 is EXIT: TERM_OWNER: job killed by owner"),
        ("jsrun", b"jsrun", "EXIT  TERM_RUNLIMIT: too long\n", "job 7 is EXIT: TERM_RUNLIMIT: too long"),
        ("openpbs", b"IFS", "job_state = E\n comment = walltime\n", "job 9.server has state E: walltime"),
    ],
)
def test_a_job_that_the_engine_ends(horarun, allocation, engine, command, answer, words):
    held = allocation(engine)
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", sum(SLOTS.values()))
    held.say(answer)
    kill_commands(job, command)
    done = job.finish().expect(125)
    assert re.search(rf"has ended the job: {re.escape(words)}.*E_ENGINE", done.messages, re.S), done
    jobs.expect_nothing_left(job, also=jobs.agents)


def test_a_host_that_is_lost_while_the_engine_knows_nothing(horarun, allocation):
    held = allocation("lsf")
    job = start(horarun, held, "sh", "-c", "echo up; exec sleep 1000")
    job.read_until("up", sum(SLOTS.values()))
    held.say("RUN   -\n")
    kill_commands(job, b"ssh")
    done = job.finish().expect(125)
    assert "E_HOST_LOST" in done.messages and "E_ENGINE" not in done.messages, done


def test_jsrun_by_name(horarun, allocation):
    held = allocation("jsrun")
    done = start(horarun, held, "--jsrun", "true").finish().expect(0)
    assert "agents start by jsrun" in done.messages, done
    done = start(horarun, held, "--engine", "lsf", "-H", "node1", "true").finish().expect(0)
    assert "agents start by blaunch" in done.messages, done
    done = start(horarun, allocation("lsf"), "--jsrun", "true").finish().expect(2)
    assert "$PATH has no jsrun" in done.messages, done
