# SPDX-License-Identifier: Apache-2.0
"""--json: every event is of the published schema, and the schema knows no other."""

import errno
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import jobs

jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema checks the events")
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "faults"))
import inject  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def events_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"schema":')]


@pytest.fixture
def schema(horarun):
    text = horarun.run("explain", "events").expect(0).text
    assert text == (ROOT / "docs/reference/events.schema.json").read_text()
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def test_every_event_is_valid(horarun, schema, tmp_path):
    done = horarun.run(
        "-np",
        2,
        "--json",
        "--progress",
        "--bind",
        "core",
        "--on-stall",
        "dump",
        "--stall-after",
        "1s",
        "--timeout",
        "4s",
        "--grace",
        "1s",
        "--chaos",
        "stop:1@0+100ms",
        "sh",
        "-c",
        "echo hello >&2; exec sleep 60",
    ).expect(124)
    failed = horarun.run("-np", 2, "--json", "sh", "-c", "exit $HOROVOD_RANK").expect(1)
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0" / "stdout").symlink_to("/dev/full")
    lost = horarun.run("-np", 1, "--json", "--output-filename", tmp_path, "echo", "x").expect(125)
    once = horarun.run("-np", 1, "--json", "--restarts", 1, "sh", "-c", "test $HORA_RESTART = 1").expect(0)
    script = tmp_path / "hosts.sh"
    script.write_text("#!/bin/sh\necho localhost:1\n")
    script.chmod(0o755)
    elastic = horarun.run("-np", 1, "--min-np", 1, "--host-discovery-script", script, "--json", "true").expect(0)
    nodes = tmp_path / "nodes"
    nodes.write_text("localhost\n")
    of_engine = dict(os.environ, PBS_JOBID="7.server", PBS_NODEFILE=str(nodes))
    found = horarun.run("--json", "true", env=of_engine).expect(0)
    events = [event for job in (done, elastic, lost, found, once, failed) for event in events_of(job.messages)]
    validator = jsonschema.Draft202012Validator(schema)
    for event in events:
        problems = [error.message for error in validator.iter_errors(event)]
        assert not problems, (event, problems)
    names = {reference["$ref"].rsplit("/", 1)[1] for reference in schema["oneOf"]}
    # One takes root: below. The others take test hosts: test_vendor_parts.py, test_share.py.
    assert {event["event"] for event in events} == names - {"gpu_fault", "runtime", "sending"}
    assert events[-1]["event"] == "job_end"


def test_a_rank_that_cannot_be_started_has_stage_and_errno(horarun, schema, tmp_path):
    validator = jsonschema.Draft202012Validator(schema)

    def exit_of(code, *program):
        events = events_of(horarun.run("-np", 1, "--json", *program).expect(code).messages)
        (event,) = [event for event in events if event["event"] == "rank_exit"]
        assert not list(validator.iter_errors(event)), event
        return event["stage"], event["errno"]

    (tmp_path / "plain").write_text("")
    assert exit_of(126, tmp_path / "plain") == ("executing", errno.EACCES)
    assert exit_of(127, tmp_path / "missing") == ("executing", errno.ENOENT)
    assert exit_of(3, "sh", "-c", "exit 3") == ("", 0)


def test_a_wrong_command_line_is_an_event(horarun, schema):
    validator = jsonschema.Draft202012Validator(schema)
    for words in (("--json", "--bogus", "true"), ("-np", "two", "--json", "true"), ("cache", "sl", "--json")):
        done = horarun.run(*words).expect(2)
        (event,) = events_of(done.messages)
        assert not list(validator.iter_errors(event)), event
        assert (event["event"], event["exit_code"], event["code"]) == ("job_end", 2, "E_USAGE"), event
        assert len(done.messages.splitlines()) == 1, done


def test_a_wrong_event_is_refused(schema):
    validator = jsonschema.Draft202012Validator(schema)
    good = {"schema": 1, "time": "2026-11-21T02:44:46.123456Z", "event": "stall", "silent_ms": 5}
    assert validator.is_valid(good)
    for wrong in ({"schema": 2}, {"time": "yesterday"}, {"event": "other"}, {"silent_ms": "5"}, {"more": 1}):
        assert not validator.is_valid({**good, **wrong}), wrong


def test_schema_sources_and_page_name_the_same_events(schema):
    names = {reference["$ref"].rsplit("/", 1)[1] for reference in schema["oneOf"]}
    emitted = set()
    for path in [*(ROOT / "launcher").rglob("*.cpp"), ROOT / "apps/run/main.cpp"]:
        emitted |= set(re.findall(r'(?:events_\.emit|EventLog::line)\(\s*"(\w+)"', path.read_text()))
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", (ROOT / "docs/reference/events.md").read_text(), re.M)
    assert emitted == names == {name for name, _ in rows}
    for name, fields in rows:
        own = set(schema["$defs"][name]["properties"]) - {"schema", "time", "event"}
        assert set(re.findall(r"`(\w+)`", fields)) == own, name


MEETS = """\
import os, sys
import numpy as np
import hora.numpy as hvd
if os.environ['HOROVOD_RANK'] == '1': sys.stdin.readline()
hvd.init()
sys.stdin.readline()
hvd.allreduce(np.ones(4), name='first')
sys.stdin.read()
"""


def test_stages_of_ranks_that_meet(horarun, schema, tmp_path):
    pytest.importorskip("numpy", reason="the program uses hora.numpy")
    (tmp_path / "program.py").write_text(MEETS)
    job = horarun.start(
        "-np",
        2,
        "--json",
        "--timings",
        "--stdin",
        "all",
        sys.executable,
        str(tmp_path / "program.py"),
        stdin=subprocess.PIPE,
    )
    validator = jsonschema.Draft202012Validator(schema)
    seen = ""
    os.set_blocking(job.process.stderr.fileno(), False)

    def reached(stage):
        nonlocal seen
        seen += (job.process.stderr.read() or b"").decode()
        return f'"stage":"{stage}"' in seen

    # Each stage is entered when the ranks are let on, and not before.
    jobs.wait_until(lambda: reached("rendezvous"), "the stage of ranks that meet")
    assert not reached("first collective")
    job.process.stdin.write(b"rank 1 calls init\n")
    job.process.stdin.flush()
    jobs.wait_until(lambda: reached("first collective"), "the stage of ranks that have met")
    assert not reached("work")
    job.process.stdin.write(b"both go on\n")
    job.process.stdin.flush()
    jobs.wait_until(lambda: reached("work"), "the stage of ranks that work")
    os.set_blocking(job.process.stderr.fileno(), True)
    done = job.finish().expect(0)
    text = seen + done.messages
    figures = " ".join(text.split())  # they are wrapped
    assert re.search(r"ranks [\d.]+, rendezvous [\d.]+, first collective [\d.]+, work [\d.]+", figures), text
    assert all(validator.is_valid(event) for event in events_of(text))


def test_events_of_a_gpu(horarun, schema, hosts, tmp_path):
    up = hosts(8)
    injector = inject.Injector(up, tmp_path, 8)
    try:
        injector.gpu()
        fault = "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=init, MMU Fault"
        # The first rank of the host has its fault at once, while the others are still being started.
        done = horarun.run(
            "-H",
            "node2:1,node3:48",
            "--json",
            "sh",
            "-c",
            f"[ $HOROVOD_RANK != 1 ] || echo '{fault}' >/dev/kmsg",
        ).expect(0)
    finally:
        injector.take_back()
    events = events_of(done.messages)
    validator = jsonschema.Draft202012Validator(schema)
    assert all(validator.is_valid(event) for event in events), done
    (seen,) = [event for event in events if event["event"] == "gpu_fault"]
    assert (seen["host"], seen["device"], seen["xid"], seen["rank"]) == ("node3", "0000:3b:00", 31, -1), seen
    assert "memory page fault" in seen["message"], seen
