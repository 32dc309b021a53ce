# SPDX-License-Identifier: Apache-2.0
"""Jobs of hundreds of hosts, of which a few behave badly. One process plays all of them, by the real protocol; the
launcher is the real one. HORA_SIMULATED_HOSTS=10000 makes the jobs larger (scripts/ci many-hosts)."""

import collections
import os
import re
import subprocess

import pytest

SIMULATED = os.path.join(os.path.dirname(__file__), "..", "support", "transports", "simulated", "in-a-network")
COUNT = int(os.environ.get("HORA_SIMULATED_HOSTS", "300"))
RANKS = 8  # per host
# All hosts share the processors here, so larger jobs take longer to start.
START_S = max(10, COUNT // 100)


@pytest.fixture
def play(build, own_world, tmp_path):
    """play(["mute-1"], ["--for", "200"], "--lease", "4s"): a job of COUNT usual hosts and these, in the middle of the
    list. Their names say how they behave (simulated_host.h)."""
    simulator = os.path.join(build, "bin", "hora-simulated-hosts")
    if not os.access(simulator, os.X_OK):
        pytest.fail(f"no {simulator}: run scripts/build release", pytrace=False)

    def run(odd, script, *options):
        usual = [f"node-{k}" for k in range(COUNT)]
        names = usual[: COUNT // 2] + odd + usual[COUNT // 2 :]
        hostfile = tmp_path / "hosts"
        hostfile.write_text("".join(f"{name} slots={RANKS}\n" for name in names))
        command = [SIMULATED, simulator, tmp_path / "report", os.path.join(build, "bin", "horarun-simulated")]
        command += ["--transport", "simulated", "--hostfile", hostfile, *options, "simulated-rank", *script]
        with open(tmp_path / "out", "w+b") as out:
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, timeout=20 * START_S, check=False)
            out.seek(0)
            return done.returncode, out.read().decode(), done.stderr.decode()

    return run


def test_slow_hosts_are_waited_for(play):
    code, out, err = play([f"slow-{k}" for k in range(5)], ["--for", "200"], "--start-timeout", f"{START_S}s")
    assert (code, out) == (0, ""), err


def test_a_silent_host_is_named_at_the_deadline(play):
    code, out, err = play(["silent-1"], ["--for", "60000"], "--start-timeout", f"{START_S}s")
    assert (code, out) == (124, ""), err
    assert "[E_START_TIMEOUT]" in err
    assert re.search(r"^  silent-1 +shell ", err, re.M) and f"{COUNT} more" in err, err
    assert "node-" not in err and len(err.splitlines()) < 10, err


@pytest.mark.parametrize("failure", ["mute", "gone"])
def test_a_host_that_is_lost_ends_the_job_and_is_named(play, failure):
    options = ["--start-timeout", f"{20 * START_S}s", "--lease", f"{START_S}s", "--grace", f"{START_S}s"]
    code, out, err = play([f"{failure}-1"], ["--for", "600000"], *options)
    assert (code, out) == (125, ""), err
    assert f"host {failure}-1: " in err and "[E_HOST_LOST]" in err, err
    assert f"{COUNT * RANKS} ranks were terminated" in err, err
    assert "node-" not in err and len(err.splitlines()) < 10, err


def test_a_host_that_refuses_starts_nothing(play):
    code, out, err = play(["refuses-1"], ["--for", "600000"], "--start-timeout", f"{20 * START_S}s")
    assert (code, out) == (125, ""), err
    assert "host refuses-1: " in err and "node-" not in err and len(err.splitlines()) < 10, err


def test_a_rank_that_fails_ends_the_others(play):
    rank = COUNT * RANKS // 2 + 3
    code, out, err = play([], ["--for", "100", "--exit", f"{rank}:7"], "--start-timeout", f"{20 * START_S}s")
    assert (code, out) == (7, ""), err
    assert f"rank {rank} on node-{rank // RANKS} exited with code 7" in err and len(err.splitlines()) < 10, err


def test_the_page_of_a_large_job_stays_small(play, tmp_path):
    rank, page = COUNT * RANKS // 2 + 3, tmp_path / "report.html"
    options = ["--start-timeout", f"{20 * START_S}s", "--report", page]
    code, _, err = play([], ["--for", "100", "--exit", f"{rank}:7"], *options)
    assert code == 7, err
    text = page.read_text()
    rows = re.findall(r'<tr><td data-is="rank">(\d+)</td><td data-is="ended" class="(\w+)">', text)
    assert len(rows) == 256 and (str(rank), "bad") in rows, rows
    assert f"<p>256 of {COUNT * RANKS} ranks: " in text and f"<p>256 of {COUNT} hosts: " in text
    assert f"rank {rank} on node-{rank // RANKS} exited with code 7" in text
    assert len(text) < 1_000_000


def test_output_of_all_ranks_arrives_whole(play):
    lines = 20
    script = ["--for", "100", "--output", str(80 * lines), "--line", "80"]
    code, out, err = play([], script, "--start-timeout", f"{20 * START_S}s")
    assert code == 0, err
    seen = collections.Counter()
    for line in out.splitlines():
        match = re.fullmatch(r"\[(\d+)\]<stdout>:r(\d+) l(\d+) \.*", line)
        assert match and match[1] == match[2], line
        seen[int(match[1])] += int(match[3]) == seen[int(match[1])]  # in the order in which the rank wrote them
    assert seen == dict.fromkeys(range(COUNT * RANKS), lines)
