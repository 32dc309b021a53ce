# SPDX-License-Identifier: Apache-2.0
"""Every byte of every rank arrives, once, in order, in whole lines, at the pace of the reader."""

import fcntl
import gzip
import importlib.util
import os
import re
import signal
import subprocess
import time

import pytest

import jobs

PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def chatter():
    path = os.path.join(os.path.dirname(__file__), "programs", "chatter.py")
    spec = importlib.util.spec_from_file_location("chatter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def untag(data, stream="stdout"):
    """rank -> its bytes. A prefix stands at the start of the stream and behind each line end."""
    pattern = re.compile(rb"\[(\d+)\]<%s>:([^\r\n]*(?:\r\n|\r|\n|\Z))" % stream.encode())
    ranks, position = {}, 0
    while position < len(data):
        match = pattern.match(data, position)
        assert match, f"no tag at byte {position}: {data[position : position + 80]!r}"
        ranks.setdefault(int(match[1]), []).append(match[2])
        position = match.end()
    return {rank: b"".join(pieces) for rank, pieces in ranks.items()}


def check_all(ranks, chatter, count, total):
    assert sorted(ranks) == list(range(count))
    for rank, got in ranks.items():
        wanted = b"".join(chatter.lines_of(rank, total))
        if got == wanted + b"\n" and not wanted.endswith(b"\n"):
            got = got[:-1]  # the console ends an unfinished last line
        assert got == wanted, (
            f"rank {rank}: {len(got)} bytes, expected {len(wanted)}; they differ from byte "
            f"{len(os.path.commonprefix([got, wanted]))} on"  # noqa: RUF071 - bytes of output
        )


def last_states(rank, chatter, total):
    """What a file has: of a line the text behind its last lone carriage return, and all of it once a NUL has come."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+\Z", b"".join(chatter.lines_of(rank, total)))
    stored, is_data = b"", False
    for line in lines:
        is_data = is_data or b"\0" in line
        text = line.rstrip(b"\r\n")
        if not is_data and text:
            line = text.rpartition(b"\r")[2] + line[len(text) :]
        stored += b"[%d]<stdout>:" % rank + line
    return stored


def test_sixty_four_ranks_of_mixed_lines(horarun, chatter, shared):
    total = 300_000
    done = horarun.run("-np", 64, PYTHON, "-S", f"{shared}/chatter.py", total).expect(0)
    check_all(untag(done.out), chatter, 64, total)


def test_from_hosts(horarun, hosts, chatter, shared):
    total = 1_000_000
    done = horarun.run("-H", hosts(4).spec(2), PYTHON, "-S", f"{shared}/chatter.py", total).expect(0)
    check_all(untag(done.out), chatter, 8, total)


def test_files(horarun, chatter, shared, tmp_path):
    folder = tmp_path / "deep" / "logs"
    total = 200_000
    done = horarun.run("-np", 11, "--output-filename", folder, PYTHON, "-S", f"{shared}/chatter.py", total).expect(0)
    check_all(untag(done.out), chatter, 11, total)
    assert sorted(os.listdir(folder)) == [f"rank.{rank:02}" for rank in range(11)]
    for rank in range(11):
        assert sorted(os.listdir(folder / f"rank.{rank:02}")) == ["stderr", "stdout"]
        assert (folder / f"rank.{rank:02}" / "stdout").read_bytes() == last_states(rank, chatter, total)


def test_files_of_a_single_rank(horarun, tmp_path):
    horarun.run("-np", 1, "--output-filename", tmp_path, "sh", "-c", "echo out; echo err >&2").expect(0)
    assert (tmp_path / "rank.0" / "stdout").read_text() == "[0]<stdout>:out\n"
    assert (tmp_path / "rank.0" / "stderr").read_text() == "[0]<stderr>:err\n"


def test_progress_bars_leave_their_last_state_in_files(horarun, tmp_path):
    script = "i=0; while [ $i -lt 500 ]; do i=$((i+1)); printf '\\r%3d of 500' $i; done >&2; echo >&2; echo next >&2"
    done = horarun.run("-np", 1, "--output-filename", tmp_path, "bash", "-c", script).expect(0)
    assert done.messages.count("of 500\r") >= 499, done  # the console has all of them
    assert (tmp_path / "rank.0" / "stderr").read_text() == "[0]<stderr>:500 of 500\n[0]<stderr>:next\n"


def test_files_of_an_earlier_run_go(horarun, tmp_path):
    horarun.run("-np", 11, "--output-filename", tmp_path, "echo", "first").expect(0)
    (tmp_path / "rank.03" / "mine").touch()
    (tmp_path / "rank.99").mkdir()
    (tmp_path / "rank.99" / "stdout").write_text("not of a rank: there is no stderr")
    (tmp_path / "rank.x").mkdir()
    (tmp_path / "rank.77").symlink_to(tmp_path / "rank.x")
    (tmp_path / "notes").touch()
    done = horarun.run("-np", 2, "--output-filename", tmp_path, "echo", "second").expect(0)
    assert "removed the files of an earlier run" in done.messages and "rank.00 to rank.10" in done.messages, done
    assert sorted(os.listdir(tmp_path)) == [
        "notes", "rank.0", "rank.03", "rank.1", "rank.77", "rank.99", "rank.x"
    ]  # fmt: skip
    assert os.listdir(tmp_path / "rank.03") == ["mine"]
    again = horarun.run("-np", 2, "--output-filename", tmp_path, "echo", "third").expect(0)
    assert not again.messages and (tmp_path / "rank.1" / "stdout").read_text() == "[1]<stdout>:third\n"


def test_files_that_cannot_be_made(horarun, tmp_path):
    (tmp_path / "file").write_text("")
    done = horarun.run("-np", 1, "--output-filename", tmp_path / "file", "touch", tmp_path / "started").expect(2)
    assert "file" in done.messages and not (tmp_path / "started").exists(), done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("link", ["rank.0", "rank.0/stdout"])
@pytest.mark.parametrize("owner,mode", [(65534, 0o755), (0, 0o777)])
def test_files_follow_no_link_in_a_folder_of_others(horarun, tmp_path, link, owner, mode):
    """Another user has made the folder, or may write to it, and has put a link to a file of ours there."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "stdout").write_text("precious")
    place = tmp_path / "theirs" / link
    place.parent.mkdir(parents=True)
    for folder in {tmp_path / "theirs", place.parent}:
        os.chown(folder, owner, owner)
        folder.chmod(mode)
    place.symlink_to(tmp_path / "ours" / ("stdout" if link.endswith("stdout") else ""))
    done = horarun.run("--output-filename", tmp_path / "theirs", "-np", "1", "touch", tmp_path / "ran").expect(2)
    assert f"{place} is a link, in a folder where others may have put it" in done.messages, done
    assert (tmp_path / "ours" / "stdout").read_text() == "precious" and not (tmp_path / "ran").exists()
    place.parent.chmod(0o755)
    os.chown(place.parent, 0, 0)
    horarun.run("--output-filename", tmp_path / "theirs", "-np", "1", "echo", "ok").expect(
        0
    )  # one's own link is followed
    assert (tmp_path / "ours" / "stdout").read_text() == "[0]<stdout>:ok\n"


def test_streams_are_kept_apart(horarun):
    done = horarun.run("-np", 2, "sh", "-c", "echo out; echo err >&2").expect(0)
    assert untag(done.out) == {0: b"out\n", 1: b"out\n"}
    assert untag(done.err, "stderr") == {0: b"err\n", 1: b"err\n"}


def test_a_line_end_that_another_rank_came_between(horarun, tmp_path):
    """A CR comes out at once (a progress bar); the LF that was meant to join it comes much later."""
    program = f"""if [ $HOROVOD_RANK = 0 ]; then printf 'bar\\r'; until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo
        else until [ -e {tmp_path}/speak ]; do sleep 0.01; done; echo between; fi"""
    job = horarun.start("-np", 2, "sh", "-c", program)
    seen = job.read_until("bar\r")
    (tmp_path / "speak").touch()
    seen += job.read_until("between")
    (tmp_path / "go").touch()
    done = job.finish()
    assert done.code == 0 and untag(seen.encode() + done.out) == {0: b"bar\r\n", 1: b"between\n"}, done


def uncut(data):
    """rank -> its bytes, of lines that are cut where another rank's came between."""
    ranks, inside = {}, set()
    for line in data.splitlines(keepends=True):
        rank, text = re.fullmatch(rb"\[(\d+)\]<std(?:out|err)>:(.*)", line, re.S).groups()
        assert text.startswith(b"<continued>") == (rank in inside), (line[:100], inside)
        if rank in inside:
            text = text[len(b"<continued>") :]
            inside.discard(rank)
        if text.endswith(b"<continues>\n"):
            text = text[: -len(b"<continues>\n")]
            inside.add(rank)
        ranks.setdefault(int(rank), []).append(text)
    assert not inside
    return {rank: b"".join(pieces) for rank, pieces in ranks.items()}


def speak_in_turn(horarun, folder, long_one, other, *options, **more):
    """Rank 0 does `long_one`, whose output is read, the last one `other`; then rank 0 ends the line. Returns all that
    came."""
    program = f"""if [ $HOROVOD_RANK = 0 ]; then {long_one}; until [ -e {folder}/go ]; do sleep 0.01; done; echo end
        fi; if [ $HOROVOD_RANK = $((HOROVOD_SIZE - 1)) ]; then until [ -e {folder}/speak ]; do sleep 0.01; done
        {other}; fi"""
    job = horarun.start(*options, "sh", "-c", program, **more)
    seen = b""
    while seen.count(b"l") < 1 << 20:
        seen += os.read(job.process.stdout.fileno(), 1 << 20)
    (folder / "speak").touch()
    return job, seen


LONG_PART = "head -c 1500000 /dev/zero | tr '\\0' l"  # of a line, more than is held of one


@pytest.mark.parametrize("other", ["echo between", "echo between >&2"])
def test_a_long_line_is_cut_where_another_rank_comes_between(horarun, tmp_path, other):
    job, seen = speak_in_turn(
        horarun, tmp_path, LONG_PART, other, "-np", 2, "--output-filename", tmp_path / "files", stderr=subprocess.STDOUT
    )
    seen += job.read_until("between").encode()
    (tmp_path / "go").touch()
    seen += job.finish().expect(0).out
    assert uncut(seen) == {0: b"l" * 1_500_000 + b"end\n", 1: b"between\n"}
    assert seen.count(b"<continues>\n") == 1 and b"l<continues>\n[1]" in seen
    stored = (tmp_path / "files" / "rank.0" / "stdout").read_bytes()
    assert stored == b"[0]<stdout>:" + b"l" * 1_500_000 + b"end\n"


def test_a_long_line_is_whole_without_other_output(horarun, tmp_path):
    """Neither on another console, nor when others were silent."""
    job, seen = speak_in_turn(horarun, tmp_path, LONG_PART + "; echo error >&2", "true", "-np", 2, "--no-prefix-output")
    assert os.read(job.process.stderr.fileno(), 100) == b"error\n"
    (tmp_path / "go").touch()
    assert seen + job.finish().expect(0).out == b"l" * 1_500_000 + b"end\n"


def test_long_lines_of_many_ranks(horarun):
    program = (
        "for n in 1 2 3; do head -c 3000000 /dev/zero | tr '\\0' $HOROVOD_RANK; echo; echo short $HOROVOD_RANK; done"
    )
    done = horarun.run("-np", 4, "sh", "-c", program).expect(0)
    for rank, text in uncut(done.out).items():
        assert text == (b"%d" % rank * 3_000_000 + b"\nshort %d\n" % rank) * 3, f"rank {rank}"


def test_time_stamps(horarun):
    done = horarun.run("-np", 1, "--prefix-output-with-timestamp", "echo", "x").expect(0)
    assert re.fullmatch(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:x\n", done.text), done


def test_prefix_by_template(horarun, hosts):
    names = hosts(2)
    template = "{{{rank}/{local_rank}@{host}}} {date}T{time} {stream}: "
    done = horarun.run("-H", names.spec(2), "--output-prefix", template, "sh", "-c", "echo out; echo err >&2").expect(0)
    first, second = names.names
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}"
    for text, stream in ((done.text, "stdout"), (done.messages, "stderr")):
        found = sorted(re.findall(rf"(?m)^\{{(\d/\d@\S+)\}} {time} {stream}: {stream[3:]}$", text))
        assert found == [f"0/0@{first}", f"1/1@{first}", f"2/0@{second}", f"3/1@{second}"], done


def test_an_unknown_field_names_the_known_ones(horarun):
    done = horarun.run("-np", 1, "--output-prefix", "{hots}", "true").expect(2)
    assert "unknown field; the fields are {rank}, {local_rank}, {host}" in done.messages, done


def test_lines_are_shown_by_pattern(horarun, tmp_path):
    script = "echo epoch 1; echo loss 0.5; echo loss nan; echo epoch 2 >&2; printf 'loss 0.1'"
    options = ["--show-lines", "^loss", "--show-lines", "epoch 2", "--hide-lines", "nan$"]
    done = horarun.run("-np", 2, "--show-ranks", 1, *options, "--output-filename", tmp_path, "sh", "-c", script).expect(
        0
    )
    assert done.text == "[1]<stdout>:loss 0.5\n[1]<stdout>:loss 0.1\n", done
    assert done.messages == "[1]<stderr>:epoch 2\n", done
    for rank in (0, 1):
        lines = (tmp_path / f"rank.{rank}" / "stdout").read_text().splitlines()
        assert lines == [f"[{rank}]<stdout>:{line}" for line in ("epoch 1", "loss 0.5", "loss nan", "loss 0.1")]


def rotated(folder, stream="stdout"):
    """The contents of the files, the oldest first."""
    names = [name for name in os.listdir(folder) if name.startswith(f"{stream}.")]
    numbers = sorted((int(name.rpartition(".")[2]) for name in names), reverse=True)
    assert numbers == list(range(len(numbers), 0, -1))
    return [(folder / name).read_bytes() for name in [f"{stream}.{number}" for number in numbers] + [stream]]


def test_files_are_rotated_without_loss(horarun, chatter, shared, tmp_path):
    total = 300_000
    options = ["--output-filename", tmp_path, "--output-max-size", "20K", "--output-max-files", 1000]
    horarun.run("-np", 3, *options, PYTHON, "-S", f"{shared}/chatter.py", total).expect(0)
    for rank in range(3):
        files = rotated(tmp_path / f"rank.{rank}")
        assert len(files) > 5
        assert b"".join(files) == last_states(rank, chatter, total)
        for contents in files[:-1]:
            assert contents.endswith(b"\n")
        for contents in files:
            assert len(contents) <= 20 * 1024 or contents.count(b"\n") <= 1


def test_the_oldest_file_goes(horarun, tmp_path):
    options = ["--output-filename", tmp_path, "--output-max-size", 200]
    horarun.run("-np", 1, *options, "seq", 1000, 1999).expect(0)
    files = rotated(tmp_path / "rank.0")
    assert len(files) == 5 and b"".join(files).endswith(b":1998\n[0]<stdout>:1999\n")
    assert all(len(contents) <= 200 for contents in files)
    # The next run leaves none of them.
    horarun.run("-np", 1, "--output-filename", tmp_path, "echo", "x").expect(0)
    assert sorted(os.listdir(tmp_path / "rank.0")) == ["stderr", "stdout"]


def test_a_file_that_cannot_be_rotated_grows_on(horarun, tmp_path):
    go, moved = tmp_path / "go", tmp_path / "moved"
    options = ["--output-filename", tmp_path, "--output-max-size", 100]
    script = f"echo begun; until [ -e {go} ]; do sleep 0.05; done; seq 1000 1099"
    job = horarun.start("-np", 1, *options, "sh", "-c", script)
    job.read_until("begun")
    (tmp_path / "rank.0").rename(moved)
    go.touch()
    done = job.finish(timeout=30).expect(0)
    assert done.messages.count("; the file grows on") == 1, done
    assert sorted(os.listdir(moved)) == ["stderr", "stdout"]
    assert (moved / "stdout").read_text().count("\n") == 101


def test_without_prefix_the_bytes_are_untouched(horarun, chatter, shared):
    done = horarun.run("-np", 1, "--no-prefix-output", PYTHON, "-S", f"{shared}/chatter.py", 3_000_000).expect(0)
    check_all({0: done.out}, chatter, 1, 3_000_000)


def test_without_prefix_nothing_is_added_at_the_end(horarun):
    compressed = gzip.compress(bytes(range(256)))
    assert not compressed.endswith(b"\n")
    done = horarun.run("-np", 1, "--no-prefix-output", "cat", input=compressed).expect(0)
    assert done.out == compressed
    # What another rank writes begins a line all the same.
    later = "[ $HOROVOD_RANK = 0 ] || { head -c 1 >/dev/null; printf later; exit; }; printf first"
    job = horarun.start("-np", 2, "--stdin", "all", "--no-prefix-output", "sh", "-c", later, stdin=subprocess.PIPE)
    seen = job.read_until("first")
    job.process.stdin.write(b"x")
    job.process.stdin.close()
    job.process.stdin = None
    assert seen.encode() + job.finish(timeout=30).expect(0).out == b"first\nlater"


def test_last_words_of_a_killed_rank(horarun):
    for attempt in range(50):
        done = horarun.run("-np", 2, "sh", "-c", "echo last words; kill -KILL $$").expect(137)
        assert b"last words" in done.out, done


def test_output_behind_the_end_of_the_rank(horarun):
    """What a child of the rank writes within the job's life is not lost."""
    done = horarun.run("-np", 1, "sh", "-c", "(echo from the child) & wait; echo done").expect(0)
    assert set(done.ranks()[0]) == {"from the child", "done"}, done


def rss_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) * 1024


def test_a_slow_reader_costs_no_memory(horarun):
    job = horarun.start("-np", 8, "sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x")
    peak, read = 0, 0
    until = time.monotonic() + 4
    while time.monotonic() < until:
        read += len(os.read(job.process.stdout.fileno(), 4096))
        peak = max([peak, rss_of(job.pid), *(rss_of(agent.pid) for agent in jobs.agents())])
        time.sleep(0.01)
    assert job.process.poll() is None, "all was read away: nothing was slow"
    assert peak < 64 << 20, f"{peak >> 20} MiB"
    job.send_signal(signal.SIGTERM)
    job.finish()


def test_standard_error_without_a_reader(horarun):
    """Not even what horarun itself has to say there keeps it from its hosts, and from its user's signals."""
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        job = horarun.start("-np", 20, "--json", "--verbose", "sh", "-c", "echo up; sleep 1000", stderr=writer)
        job.read_until("up", 20)
        job.send_signal(signal.SIGINT)
        jobs.wait_until(lambda: not job.survivors(), "the ranks to end")
        time.sleep(0.6)  # sooner, it would be taken for another part of the first request
        job.send_signal(signal.SIGINT)  # the output will not be read
        assert job.finish().code == 128 + signal.SIGINT
    finally:
        os.close(writer)
        with os.fdopen(reader, "rb") as said:
            assert said.read().count(b"\n") > 10


def test_all_of_it_arrives_in_the_end(horarun):
    job = horarun.start("-np", 4, "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x", stderr=subprocess.DEVNULL)
    count = 0
    while chunk := os.read(job.process.stdout.fileno(), 1 << 20):
        count += chunk.count(b"x")
    assert job.process.wait(timeout=60) == 0 and count == 80_000_000


def test_reader_that_goes_away(horarun):
    job = horarun.start("-np", 2, "--grace", "1s", "yes")
    os.read(job.process.stdout.fileno(), 1000)
    job.process.stdout.close()
    job.process.stdout = None
    assert job.finish(timeout=30).code not in (0, None)
    jobs.expect_nothing_left(job)
