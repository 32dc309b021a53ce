"""A host whose agent lies: the job ends with an error that names it, in time and with little memory,
and no lie becomes a success or another host's word."""
import os

import jobs
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"

LIES = {
    "exit-of-another-hosts-rank": "E_PROTOCOL",
    "also-an-exit-of-another-hosts-rank": "E_PROTOCOL",
    "output-of-another-hosts-rank": "E_PROTOCOL",
    "goodbye-without-exits": "E_PROTOCOL",
    "goodbye-at-once": "E_",
    "a-frame-of-4-gigabytes": "E_HOST_LOST",
    "an-unknown-frame": "E_PROTOCOL",
    "ready-before-hello": "E_PROTOCOL",
    "malformed-hello": "E_PROTOCOL",
    "truncated-exit": "E_PROTOCOL",
    "noise": "E_",
    "half-a-frame-and-silence": "E_HOST_LOST",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_host(horarun, tmp_path, lie):
    # Rank 0 on the honest host waits for the other one's end; rank 1 lives where the liar is.
    script = "[ $HOROVOD_RANK = 0 ] && sleep 2; echo rank $HOROVOD_RANK is done"
    done = horarun.run("-H", "honest:1,liar:1", "--transport", "command", "--rsh", f"{PYTHON} -S {HERE}/liar.py {lie} liar",
                       "--lease", "4s", "--grace", "1s", "--start-timeout", "60s", "sh", "-c", script,
                       env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}, timeout=100)
    assert done.code == 125, done
    assert LIES[lie] in done.messages and "liar" in done.messages, done
    assert "forged" not in done.text, done


def test_a_liar_cannot_make_the_launcher_hold_its_output(horarun, tmp_path):
    """600 MB that nobody has asked for, while nobody reads what the ranks print."""
    job = horarun.start("-H", "honest:1,liar:1", "--transport", "command",
                        "--rsh", f"{PYTHON} -S {HERE}/liar.py output-without-credit liar", "--lease", "4s",
                        "--grace", "1s", "sh", "-c", "sleep 5", env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)})
    # The launcher has these words among its own arguments. Its output is not read before all others have ended.
    jobs.wait_until(lambda: [p for p in jobs.processes_of("output-without-credit") if p.pid != job.pid], "the way to the liar")
    jobs.wait_until(lambda: not job.survivors(), "the job to be ended by what the liar does", 60)
    with open(f"/proc/{job.pid}/status") as status:  # it still has output that it cannot write
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert job.finish().code == 125
    assert peak < 200_000, f"{peak} KiB"
