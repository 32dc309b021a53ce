# SPDX-License-Identifier: Apache-2.0
"""Timelines: of rank 0, of every rank, of a rank that was killed, and merged."""

import json
import os
import sys

import pytest

pytest.importorskip("numpy", reason="the programs of these tests use hora.numpy")

HEAD = """\
import os, signal, sys
import numpy as np
import hora.numpy as hvd
hvd.init()
for step in range(3):
    handles = [hvd.allreduce_async(np.ones(10, dtype=np.float32), name=f'grad/{i}') for i in range(4)]
    for handle in handles:
        hvd.synchronize(handle)
hvd.broadcast(np.ones(4), 0, name='weights')
"""


@pytest.fixture
def run(horarun, tmp_path):
    def start(body, *options):
        (tmp_path / "program.py").write_text(HEAD + body)
        return horarun.run(*options, "--wdir", tmp_path, sys.executable, "program.py")

    return start


def read(path):
    """As readers of Chrome traces do: a missing bracket at the end is forgiven."""
    text = path.read_text().rstrip(" \n,")
    return json.loads(text if text.endswith("]") else text + "]")


def balanced(events):
    depth = {}
    for event in events:
        key = (event.get("pid"), event.get("tid"))
        depth[key] = depth.get(key, 0) + {"B": 1, "E": -1}.get(event["ph"], 0)
        assert depth[key] >= 0, event
    return all(value == 0 for value in depth.values())


def test_rank_0_writes_and_names_the_phases(run, tmp_path):
    run("", "-np", 2, "--timeline-filename", "trace.json", "--timeline-mark-cycles").expect(0)
    assert [path.name for path in tmp_path.glob("*.json")] == ["trace.json"]
    events = json.loads((tmp_path / "trace.json").read_text())
    names = [event.get("name") for event in events]
    for name in (
        "NEGOTIATE_ALLREDUCE",
        "ALLREDUCE",
        "SHM_ALLREDUCE",
        "NEGOTIATE_BROADCAST",
        "BROADCAST",
        "CYCLE_START",
    ):
        assert name in names, name
    assert names.count("NEGOTIATE_ALLREDUCE") == 12 and names.count("ALLREDUCE") == 12
    assert sum(event["ph"] == "X" and event["name"] == "1" for event in events) == 13
    assert {"dtype": "float32", "shape": "[10]"} in [event.get("args") for event in events]
    assert balanced(events)


def test_every_rank_writes_and_merge_makes_one(run, horarun, tmp_path):
    run("", "-np", 3, "--timeline-filename", "trace.{rank}.json").expect(0)
    paths = [tmp_path / f"trace.{rank}.json" for rank in range(3)]
    assert sorted(tmp_path.glob("*.json")) == paths
    done = horarun.run("timeline", "merge", *paths, "-o", tmp_path / "all.json").expect(0)
    assert "of 3 ranks" in done.text, done
    events = json.loads((tmp_path / "all.json").read_text())
    assert balanced(events)
    assert {event["pid"] for event in events if "pid" in event} == {0, 1, 2}
    # On one clock, what all ranks do together overlaps.
    begins, ends = {}, {}
    for event in events:
        if event.get("name") == "SHM_BCAST":
            begins[event["pid"]] = event["ts"]
    for event in events:
        if event["ph"] == "E" and event["pid"] in begins and event["ts"] >= begins[event["pid"]]:
            ends.setdefault(event["pid"], event["ts"])
    assert len(begins) == 3 and max(begins.values()) <= max(ends.values())
    again = horarun.run("timeline", "merge", paths[0], paths[0], "-o", tmp_path / "b.json").expect(2)
    assert "both of rank 0" in again.messages, again
    onto = horarun.run("timeline", "merge", paths[0], "-o", paths[0]).expect(2)
    assert "one of the files to merge" in onto.messages, onto


def head(rank):
    return json.dumps({"name": "hora", "ph": "M", "pid": 0, "args": {"rank": rank, "hostname": "h", "start_ns": 1000}})


def test_a_malformed_file_leaves_what_was_there(horarun, tmp_path):
    """Half a picture is none, and the one of the last time stays."""
    (tmp_path / "good.json").write_text("[\n" + head(0) + ',\n{"name":"y","ph":"X","ts":2,"pid":0}\n]\n')
    deep = '{"name":"y","ts":1,"args":{"a":' + "[" * 200_000 + "]" * 200_000 + "}}"
    (tmp_path / "all.json").write_text("precious")
    for wrong in ('{"broken"', deep):
        (tmp_path / "bad.json").write_text("[\n" + head(1) + ",\n" + wrong + ',\n{"name":"z","ts":3}\n]\n')
        done = horarun.run(
            "timeline", "merge", tmp_path / "good.json", tmp_path / "bad.json", "-o", tmp_path / "all.json"
        ).expect(125)
        assert "bad.json, line 3: it is no JSON object" in done.messages, done
        assert (tmp_path / "all.json").read_text() == "precious"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json", "bad.json", "good.json"]
    horarun.run("timeline", "merge", tmp_path / "good.json", "-o", tmp_path / "all.json").expect(0)
    assert len(json.loads((tmp_path / "all.json").read_text())) == 2


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_has_the_timeline_and_nothing_else(horarun, tmp_path, name):
    (tmp_path / "good.json").write_text("[\n" + head(0) + ',\n{"name":"y","ph":"X","ts":2,"pid":0}\n]\n')
    printed = horarun.run("timeline", "merge", tmp_path / "good.json", "-o", name, cwd=tmp_path).expect(0)
    assert len(json.loads(printed.text)) == 2
    assert "standard output: 2 events of 1 rank" in printed.messages, printed
    # A file that a shell has opened is written to, and not replaced: it may be appended to.
    with open(tmp_path / "all.json", "wb") as file:
        file.write(b"before\n")
        file.flush()
        horarun.run("timeline", "merge", tmp_path / "good.json", "-o", name, cwd=tmp_path, stdout=file).expect(0)
    before, merged = (tmp_path / "all.json").read_text().split("\n", 1)
    assert before == "before" and len(json.loads(merged)) == 2
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    "name,what", [("pipe", "is a pipe or a device"), ("/dev/null", "is a pipe or a device"), (".", "is a folder")]
)
def test_only_files_are_merged(horarun, tmp_path, name, what):
    """Each is read twice: a pipe gave a picture without events, and success."""
    os.mkfifo(tmp_path / "pipe")
    done = horarun.run("timeline", "merge", tmp_path / name, "-o", tmp_path / "all.json", timeout=20).expect(2)
    assert what in done.messages and not (tmp_path / "all.json").exists(), done


def test_a_killed_rank_leaves_a_readable_file(run, tmp_path):
    run(
        "names = 0\n"
        "while True:\n"
        "    hvd.allreduce(np.ones(10), name=f'n.{names % 100}')\n"
        "    names += 1\n"
        # Once events have reached the file: the ranks are faster than its writer.
        "    if names % 100 == 0 and os.path.getsize('trace.json') > 20_000: os.kill(os.getpid(), signal.SIGKILL)\n",
        "-np",
        2,
        "--timeline-filename",
        "trace.json",
    ).expect(137)
    assert len(read(tmp_path / "trace.json")) > 100


def test_a_file_that_cannot_be_written_fails_a_job_that_runs_to_its_end(run):
    done = run("print('trained')", "-np", 2, "--timeline-filename", "/nowhere/trace.json").expect(125)
    assert "opening the timeline /nowhere/trace.json" in done.messages, done
    assert done.text.count("trained") == 2, done


def test_a_timeline_on_several_hosts_is_on_one_clock(horarun, hosts, shared, tmp_path):
    hosts(2)
    program = "import hora.numpy as hvd, numpy as np\nhvd.init()\nhvd.allreduce(np.ones(4), name='x')\n"
    with open(shared + "/timeline_program.py", "w") as file:
        file.write(program)
    horarun.run(
        "-np",
        2,
        "-H",
        "node1:1,node2:1",
        "--timeline-filename",
        "/var/tmp/hora-trace.{rank}.json",
        "--wdir",
        shared,
        "sh",
        "-c",
        "python3 timeline_program.py && cat /var/tmp/hora-trace.$HOROVOD_RANK.json >trace.$HOROVOD_RANK.json"
        "; rm /var/tmp/hora-trace.$HOROVOD_RANK.json",
    ).expect(0)
    heads = [
        next(event["args"] for event in read_path(shared, rank) if event.get("name") == "hora") for rank in range(2)
    ]
    assert heads[0]["clock_offset_ns"] == 0
    # The test hosts are one machine: their clock is one, and so the truth is known.
    assert abs(heads[1]["clock_offset_ns"]) <= heads[1]["clock_error_ns"], heads
    assert 0 < heads[1]["clock_error_ns"] < 50_000_000, heads


def read_path(folder, rank):
    import pathlib

    return read(pathlib.Path(folder) / f"trace.{rank}.json")
