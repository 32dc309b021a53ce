"""A job that hangs: where its ranks stand, as a table and as merged stacks."""
import json
import os
import signal

import jobs
import pytest


def check_stacks(text):
    """Three ranks wait, one stands elsewhere: two groups, the lonely one first."""
    lonely = text.index("  rank 1:")
    many = text.index("  ranks 0,2,3:") if "  ranks 0,2,3:" in text else text.index("  ranks 0,2-3:")
    assert lonely < many, text
    assert "in loses_its_way" in text[lonely:many] and "in waits_for_the_others" in text[many:], text
    assert text.count("in waits_for_the_others") == 1, text


def test_sigquit_shows_stacks_and_the_job_goes_on(horarun, shared):
    job = horarun.start("-np", 4, "python3", f"{shared}/hang.py")
    job.read_until("ready", 4)
    job.send_signal(signal.SIGQUIT)
    err = read_until(job, "in waits_for_the_others")
    check_stacks(err)
    assert "where the ranks stand (SIGQUIT)" in err and "python3" in err
    assert job.process.poll() is None
    job.send_signal(signal.SIGTERM)
    job.finish().expect(128 + 15)


def read_until(job, text, seconds=30):
    """stderr until `text` was seen; what was read is not in finish()."""
    seen = bytearray()
    os.set_blocking(job.process.stderr.fileno(), False)

    def look():
        seen.extend(job.process.stderr.read1(65536) or b"")
        return text.encode() in seen
    try:
        jobs.wait_until(look, f"{text!r} on stderr; so far {bytes(seen)!r}", seconds)
    finally:
        os.set_blocking(job.process.stderr.fileno(), True)
    return seen.decode(errors="replace")


def test_a_time_limit_shows_stacks_first(horarun, shared):
    done = horarun.run("-np", 4, "--timeout", "3s", "--grace", "1s", "python3", f"{shared}/hang.py").expect(124)
    check_stacks(done.messages)
    assert "(--timeout)" in done.messages and "E_TIMEOUT" in done.messages
    assert done.messages.index("where the ranks stand") < done.messages.index("E_TIMEOUT")


@pytest.mark.parametrize("policy, code", [("warn", 143), ("dump", 143), ("kill", 124)])
def test_a_stall(horarun, shared, policy, code):
    job = horarun.start("-np", 4, "--on-stall", policy, "--stall-after", "1500ms", "--grace", "1s", "python3",
                        f"{shared}/hang.py")
    job.read_until("ready", 4)
    if policy != "kill":
        err = read_until(job, "no rank has written" if policy == "warn" else "in waits_for_the_others")
        job.send_signal(signal.SIGTERM)
        done = job.finish().expect(code)
        err += done.messages
    else:
        err = job.finish().expect(code).messages
        assert "E_STALLED" in err
    assert "no rank has written anything for 1 s" in err
    if policy == "warn":
        assert "where the ranks stand" not in err
    else:
        check_stacks(err)


def test_on_hosts_one_of_which_is_frozen(horarun, hosts, shared):
    four = hosts(4)
    job = horarun.start("-H", four.spec(1), "--json", "--lease", "20s", "python3", f"{shared}/hang.py")
    job.read_until("ready", 4)
    four.act("freeze", 3)
    try:
        job.send_signal(signal.SIGQUIT)
        err = read_until(job, '"event":"autopsy"')
    finally:
        four.act("thaw", 3)
    (event,) = [json.loads(line) for line in err.splitlines() if '"event":"autopsy"' in line]
    assert "host node3 did not answer" in event["text"] and "in loses_its_way" in event["text"], event["text"]
    job.send_signal(signal.SIGTERM)
    job.finish().expect(143)


def test_programs_that_are_no_python_have_a_row(horarun):
    job = horarun.start("-np", 2, "sh", "-c", "echo ready; sleep 300")
    job.read_until("ready", 2)
    job.send_signal(signal.SIGQUIT)
    err = read_until(job, "no stacks from")
    assert "ranks 0,1" in err and " S " in err, err
    job.send_signal(signal.SIGTERM)
    job.finish().expect(143)


def test_a_sitecustomize_of_the_environment_still_runs(horarun, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.from_site = 42\n")
    done = horarun.run("-np", 1, "python3", "-c", "print(from_site)", env={"PYTHONPATH": str(tmp_path)}).expect(0)
    assert done.ranks() == {0: ["42"]}
