# SPDX-License-Identifier: Apache-2.0
"""--chaos kills and stops ranks, and the messages say so."""

import json
import re
import subprocess

import jobs

WAIT = 'until [ -e "$0" ]; do sleep 0.02; done'


def state_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_rank_is_killed(horarun, hosts, tmp_path):
    hosts(1)
    path = tmp_path / "report.json"
    done = horarun.run(
        "-H", "localhost:1,node1:1", "--chaos", "kill:node1@0,term:1@1h", "--report", path, "sleep", 60
    ).expect(137)
    assert re.search(r"^horarun: chaos: rank 1 on node1: SIGKILL \(\d+\.\d s\)$", done.messages, re.M), done
    assert "rank 1 on node1 was killed by SIGKILL\n  --chaos sent it that signal\n" in done.messages, done
    assert "out-of-memory" not in done.messages, done
    report = json.loads(path.read_text())
    assert report["cause"]["rank"] == 1 and "--chaos sent it" in report["text"]
    (act,) = report["chaos"]
    assert (act["rank"], act["host"], act["signal"], act["sent"]) == (1, "node1", 9, True)
    assert [event["at_ms"] for event in report["events"] if event["event"] == "chaos"] == [act["at_ms"]]


def test_a_rank_gets_sigterm(horarun):
    done = horarun.run("-np", 2, "--chaos", "term:0@0", "sleep", 60).expect(143)
    assert "rank 0 on localhost was killed by SIGTERM\n  --chaos sent it that signal\n" in done.messages, done


def test_a_rank_is_stopped_and_goes_on(horarun, tmp_path):
    job = horarun.start(
        "-np", 2, "--chaos", "stop:1@0+300ms", "sh", "-c", WAIT, tmp_path / "go", stderr=subprocess.STDOUT
    )
    text = job.read_until("SIGCONT (")
    assert "horarun: chaos: rank 1 on localhost: SIGSTOP (" in text
    (tmp_path / "go").touch()
    assert "chaos" not in job.finish().expect(0).text


def test_a_rank_that_stays_stopped_ends_with_its_job(horarun):
    job = horarun.start("-np", 2, "--json", "--chaos", "stop:1@0", "sleep", 60, stderr=subprocess.STDOUT)
    text = job.read_until('"event":"chaos"')
    events = [json.loads(line) for line in text.splitlines() if line.startswith('{"schema"') and line.endswith("}")]
    (pid,) = [event["pid"] for event in events if event["event"] == "rank_start" and event["rank"] == 1]
    jobs.wait_until(lambda: state_of(pid) == "T", "rank 1 to be stopped")
    job.process.terminate()
    done = job.finish().expect(143)
    assert "what --chaos had done by then" in done.text and "rank 1 on localhost: SIGSTOP" in done.text, done
    jobs.expect_nothing_left(job)


def test_a_job_that_ends_too_early_says_so(horarun):
    done = horarun.run("-np", 2, "--chaos", "kill:0@1h", "true").expect(0)
    assert done.messages == "horarun: warning: the job has ended before 1 fault of --chaos could be injected\n", done


def test_what_the_job_does_not_have(horarun):
    for target in ("2", "node9"):
        done = horarun.run("-np", 2, "--chaos", f"kill:{target}@1s", "sh", "-c", "echo started").expect(2)
        assert done.messages.startswith("horarun: error: --chaos: column 6: ") and not done.out, done
