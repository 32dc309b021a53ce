# SPDX-License-Identifier: Apache-2.0
"""horarun jobs, top, attach and cancel, and --detach: a running job from another terminal."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

DEADLINE_S = 60
LATE = """\
import sys, time
import numpy as np
import hora.numpy as hvd
hvd.init()
until = time.monotonic() + float(sys.argv[1])
goes_on = np.ones(1)
while goes_on[0]:
    if hvd.rank() == 2: time.sleep(0.05)
    hvd.allreduce(np.ones(16, dtype=np.float32), name="gradient")
    goes_on = hvd.broadcast(np.array([float(time.monotonic() < until)]), 0, name="goes.on")
"""


@pytest.fixture
def ask(build, tmp_path):
    """Runs horarun with these words, with this test's runtime directory; answers the finished process."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)

    def run(*words, timeout=DEADLINE_S, **options):
        return subprocess.run(
            [os.path.join(build, "bin", "horarun"), *map(str, words)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )

    run.runtime = runtime
    run.path = os.path.join(build, "bin", "horarun")
    return run


def until(holds, what):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if value := holds():
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {DEADLINE_S} s for {what}")


def rows_of(ask, pid):
    """Other tests may run jobs at the same time: `horarun jobs` looks into /tmp as well."""
    rows = [json.loads(line) for line in ask("jobs", "--json").stdout.splitlines()]
    return [row for row in rows if row["job"] == pid]


def states_of(ask, pid):
    return [row["state"] for row in rows_of(ask, pid)]


def job_in(ask, pid, state):
    def look():
        return next((row for row in rows_of(ask, pid) if row["state"] == state), None)

    return until(look, f"job {pid} to be {state}")


def test_top_names_the_rank_that_the_others_wait_for(horarun, ask, tmp_path):
    pytest.importorskip("numpy")
    program = tmp_path / "late.py"
    program.write_text(LATE)
    job = horarun.start("-np", 4, sys.executable, str(program), DEADLINE_S, env={"XDG_RUNTIME_DIR": str(ask.runtime)})
    job_in(ask, job.pid, "running")

    def is_late():
        """Once the interpreters run, and while the machine lets the ranks run."""
        done = ask("top", job.pid, "--once", "--json")
        assert done.returncode == 0, done
        figures = json.loads(done.stdout)
        worst, *others = figures["worst"]
        assert len(others) == 3 and worst["rss_bytes"] > 1e6, figures
        return (
            worst["rank"] == 2
            and worst["delay_share"] > 0.3
            and all(rank["wait_share"] > 0.3 > rank["delay_share"] for rank in others)
            and figures["collectives_per_s"] > 1
            and figures
        )

    until(is_late, "rank 2 to be the one that the others wait for")
    table = ask("top", job.pid, "--once").stdout
    assert re.search(r"^ *2 ", table, re.M) and all(len(line) <= 80 for line in table.splitlines()), table
    text = ask("top", job.pid, "--once", "--prometheus").stdout
    assert re.search(r'^horarun_rank_delay_ratio\{job="\d+",rank="2",host="localhost"\} [\d.]+$', text, re.M), text
    assert ask("cancel", job.pid).returncode == 0
    done = ask("top", job.pid, "--once")
    assert done.returncode == 125 and f"no job {job.pid} of yours is running" in done.stderr, done


def test_progress_names_the_rank_that_the_others_wait_for(horarun, tmp_path):
    pytest.importorskip("numpy")
    program = tmp_path / "late.py"
    program.write_text(LATE)
    job = horarun.start("--progress", "-np", 4, sys.executable, str(program), DEADLINE_S)
    wanted = rb"^horarun: rank 2 on localhost delays the others for \d+% of the time; \d+s, 4 ranks, [\d.]+ collect"
    # In the first line the interpreters may still start; the job ends by itself.
    lines = []
    for line in job.process.stderr:
        lines.append(line)
        if re.search(wanted, line):
            break
    else:
        raise AssertionError(f"no line named rank 2: {lines}")
    job.send_signal(signal.SIGTERM)
    job.finish()


def test_progress_of_a_program_that_reads_json(horarun):
    done = horarun.run("--json", "--progress", "-np", 2, "sleep", 3).expect(0)
    events = [json.loads(line) for line in done.messages.splitlines() if line.startswith('{"schema":')]
    shown = [event for event in events if event["event"] == "progress"]
    assert shown and shown[0]["ranks"] == 2 and shown[0]["delay_percent"] == 0, events
    assert shown[0]["rss_bytes"] > 1e5 and re.match(r"\d+s, 2 ranks, CPU \d+%, memory ", shown[0]["message"]), shown


def test_the_report_names_the_rank_that_the_others_waited_for(horarun, tmp_path):
    pytest.importorskip("numpy")
    program = tmp_path / "late.py"
    program.write_text(LATE)
    files = [tmp_path / "report.json", tmp_path / "report.html"]
    reports = [word for file in files for word in ("--report", file)]
    horarun.run("-np", 4, *reports, sys.executable, str(program), 8).expect(0)
    report = json.loads(files[0].read_text())
    ranks = {rank["rank"]: rank for rank in report["ranks"]}
    worst = report["delays"][0]
    assert worst["rank"] == 2 and worst["host"] == "localhost" and 0.3 < worst["share"] <= 1, report["delays"]
    assert worst["late_ms"] == pytest.approx(ranks[0]["waited_ms"] - ranks[2]["waited_ms"], abs=report["ran_ms"] / 5)
    # Two collectives in each step of 50 ms or more; 64 bytes in one, 8 in the other.
    steps = ranks[2]["collectives"] // 2
    assert steps > 3 and worst["late_ms"] > 25 * steps, report
    assert ranks[2]["collective_bytes"] == 72 * steps, ranks
    used = report["usage"]
    assert len(used) > 1 and all(4e6 < point["largest_rss_bytes"] < point["rss_bytes"] for point in used), used
    assert "Who made the others wait" in files[1].read_text() and "<polyline points=" in files[1].read_text()
    assert re.search(r"rank 2 on localhost: the others waited [\d.]+ s for it", files[1].read_text())


@pytest.fixture
def nvml(build, tmp_path):
    """The environment in which NVIDIA's management library is its double, for four GPUs."""
    double = os.path.join(build, "tests", "gpu_double", "libnvidia-ml.so.1")
    if not os.path.exists(double):
        pytest.skip("built without the double of NVML")
    folder = tmp_path / "driver"
    folder.mkdir()
    shutil.copy(double, folder)
    return {"LD_LIBRARY_PATH": str(folder), "HORA_DOUBLE_DEVICES": "4"}


GIB = 1 << 30


def test_the_gpus_of_each_rank_are_shown(horarun, ask, nvml, tmp_path):
    """Rank r is given GPU 3 - r, which is busy for 43 - r percent of the time; it has 4 - r of 8 GiB in use."""
    pytest.importorskip("numpy")
    program = tmp_path / "late.py"
    program.write_text(LATE)
    files = [tmp_path / "report.json", tmp_path / "report.html"]
    reports = [word for file in files for word in ("--report", file)]
    environment = {"XDG_RUNTIME_DIR": str(ask.runtime), "CUDA_VISIBLE_DEVICES": "3,2,1,GPU-d0b1e000", **nvml}
    job = horarun.start(*reports, "--gpus-per-rank", 1, "-np", 4, sys.executable, str(program), 10, env=environment)
    job_in(ask, job.pid, "running")

    def known():
        done = ask("top", job.pid, "--once", "--json")
        figures = json.loads(done.stdout) if done.returncode == 0 else {"gpus": 0}
        return figures["gpus"] == 4 and figures

    figures = until(known, "the figures of four GPUs")
    for rank in figures["worst"]:
        number = 3 - rank["rank"]
        assert (rank["gpus"], rank["gpu_percent"]) == (1, 40 + number), rank
        assert (rank["gpu_bytes"], rank["gpu_total_bytes"]) == ((number + 1) * GIB, 8 * GIB), rank
    assert figures["gpu_bytes"] == 10 * GIB and figures["gpu_percent"] == 41, figures
    table = ask("top", job.pid, "--once").stdout
    assert re.search(r"GPU +GPUMEM\n", table) and re.search(r"^ *2 .* 41% +2\.0G\w*$", table, re.M), table
    assert all(len(line) <= 80 for line in table.splitlines()), table
    text = ask("top", job.pid, "--once", "--prometheus").stdout
    assert re.search(r'horarun_rank_gpu_ratio{job="\d+",rank="1",host="localhost"} 0\.42\n', text), text
    assert re.search(r'horarun_rank_gpu_memory_bytes{job="\d+",rank="3",host="localhost"} 1073741824', text), text
    job.finish().expect(0)
    report = json.loads(files[0].read_text())
    for rank in report["ranks"]:
        number = 3 - rank["rank"]
        assert (rank["gpus"], rank["gpu_mean_percent"]) == (1, 40 + number), rank
        assert (rank["gpu_peak_bytes"], rank["gpu_total_bytes"]) == ((number + 1) * GIB, 8 * GIB), rank
    assert any(point.get("gpu_bytes") == 10 * GIB for point in report["usage"]), report["usage"]
    page = files[1].read_text()
    assert "4.0 GiB of 8.0 GiB" in page and "Memory of the GPUs of all ranks: at most 10.0 GiB" in page


@pytest.mark.parametrize("visible, share", [(None, [40, 41]), ("0,1", [40, 40]), ("", [-1, -1]), ("7", [-1, -1])])
def test_a_rank_has_the_gpus_that_cuda_shows_it(horarun, nvml, tmp_path, visible, share):
    """Without the variable it is the one with its local number; a rank of two has their mean, rounded down."""
    file = tmp_path / "report.json"
    given = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    program = "import time; import hora.numpy as hvd; hvd.init(); hvd.barrier(); time.sleep(0.5)"
    horarun.run("-np", 2, "--report", file, sys.executable, "-c", program, env={**nvml, **given}).expect(0)
    ranks = sorted(json.loads(file.read_text())["ranks"], key=lambda rank: rank["rank"])
    assert [rank.get("gpu_mean_percent", -1) for rank in ranks] == share, ranks


def test_a_job_is_listed_and_cancelled(horarun, ask):
    job = horarun.start("-np", 2, "sleep", 600, env={"XDG_RUNTIME_DIR": str(ask.runtime)})
    row = job_in(ask, job.pid, "running")
    assert row["ranks"] == 2 and row["command"] == ["sleep", "600"] and row["hosts"] == ["localhost"], row
    table = ask("jobs").stdout
    assert re.search(rf"^{job.pid} +running +\d.*localhost +sleep 600$", table, re.M), table
    done = ask("cancel", job.pid)
    assert done.returncode == 0 and done.stdout == f"job {job.pid} has ended\n", done
    finished = job.finish()
    assert finished.code == 128 + signal.SIGTERM and "horarun cancel ends the job" in finished.messages, finished
    assert states_of(ask, job.pid) == []
    assert not (ask.runtime / "hora").exists()
    done = ask("cancel", job.pid)
    assert done.returncode == 125 and f"no job {job.pid} of yours is running" in done.stderr, done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_cannot_open_the_socket(horarun, ask):
    job = horarun.start("-np", 1, "sleep", 600, env={"XDG_RUNTIME_DIR": str(ask.runtime)})
    job_in(ask, job.pid, "running")
    attempt = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
    )
    socket_path = str(ask.runtime / "hora" / str(job.pid))
    # All folders above it may be entered: it is the last one that keeps others out.
    for folder in list(ask.runtime.parents)[:-1]:
        os.chmod(folder, os.stat(folder).st_mode | 0o055)
    os.chmod(ask.runtime, 0o755)
    done = subprocess.run([sys.executable, "-c", attempt, socket_path], capture_output=True, text=True, timeout=60)
    assert "PermissionError" in done.stderr, done
    # Where the folder is opened to all, the launcher looks at who it is.
    os.chmod(ask.runtime / "hora", 0o755)
    os.chmod(socket_path, 0o777)
    asks = attempt.replace(".connect(sys.argv[1])", "") + (
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "try: s.sendall(b'cancel\\n'); print(s.recv(100))\n"
        "except OSError as e: print(type(e))\n"
    )
    done = subprocess.run([sys.executable, "-c", asks, socket_path], capture_output=True, text=True, timeout=60)
    assert "job" not in done.stdout and done.returncode == 0, done
    os.chmod(ask.runtime / "hora", 0o700)
    job_in(ask, job.pid, "running")
    assert ask("cancel", job.pid).returncode == 0
    job.finish()


def test_what_a_killed_launcher_leaves_is_removed(horarun, ask):
    job = horarun.start("-np", 1, "sleep", 600, env={"XDG_RUNTIME_DIR": str(ask.runtime)})
    job_in(ask, job.pid, "running")
    job.send_signal(signal.SIGKILL)
    job.finish()
    assert (ask.runtime / "hora" / str(job.pid)).exists()
    assert states_of(ask, job.pid) == []
    assert not (ask.runtime / "hora").exists()


def test_a_stopped_launcher_does_not_answer(horarun, ask):
    job = horarun.start("-np", 1, "sleep", 600, env={"XDG_RUNTIME_DIR": str(ask.runtime)})
    job_in(ask, job.pid, "running")
    job.send_signal(signal.SIGSTOP)
    try:
        assert states_of(ask, job.pid) == ["not answering"]
    finally:
        job.send_signal(signal.SIGCONT)
    assert ask("cancel", job.pid).returncode == 0
    job.finish()


def detached(ask, *words):
    done = ask("--detach", *words)
    assert done.returncode == 0, done
    job = int(done.stdout.split()[-1])
    assert f"horarun attach {job}" in done.stderr, done
    return job


def gone(job):
    try:
        os.kill(job, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_detached_job_goes_on_and_is_followed(ask):
    body = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last; exit 7"
    job = detached(ask, "-np", 1, "--wdir", ask.runtime, "sh", "-c", body)
    folder = f"/tmp/hora-{os.geteuid()}"
    assert oct(os.stat(f"{folder}/{job}.out").st_mode & 0o777) == "0o600"
    follower = subprocess.Popen(
        [ask.path, "attach", str(job)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout.readline() != "" and job_in(ask, job, "running")
    # Ctrl-C on attach leaves the job.
    other = subprocess.Popen([ask.path, "attach", str(job)], stdout=subprocess.PIPE, text=True)
    other.stdout.readline()
    other.send_signal(signal.SIGINT)
    assert other.wait(DEADLINE_S) == -signal.SIGINT
    job_in(ask, job, "running")
    (ask.runtime / "go").touch()
    out = follower.stdout.read()
    assert follower.wait(DEADLINE_S) == 7 and "[0]<stdout>:last\n" in out, out
    until(lambda: gone(job), "the launcher to end")
    assert not os.path.exists(f"{folder}/{job}.out") and not os.path.exists(f"{folder}/{job}")
    done = ask("attach", job)
    assert done.returncode == 125 and "keeps no output" in done.stderr, done


def test_a_detached_job_that_cannot_start_says_why(ask):
    done = ask("--detach", "-np", 1, "/no/such/program")
    assert done.returncode == 127 and "/no/such/program" in done.stderr and done.stdout == "", done


def test_a_detached_job_keeps_the_end_of_its_output(ask):
    body = "head -c 60000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo written; sleep 600"
    job = detached(ask, "-np", 1, "--no-prefix-output", "sh", "-c", body)
    path = f"/tmp/hora-{os.geteuid()}/{job}.out"

    def settled():
        with open(path, "rb") as file:
            file.seek(-20, os.SEEK_END)
            return b"written" in file.read() and os.stat(path).st_blocks * 512 < 17 << 20

    until(settled, "the output to be cut")
    follower = subprocess.Popen([ask.path, "attach", str(job)], stdout=subprocess.PIPE)
    seen = 0
    while line := follower.stdout.readline():
        assert b"\0" not in line
        seen += len(line)
        if b"written" in line:
            break
    assert 15 << 20 < seen <= 17 << 20
    assert ask("cancel", job).returncode == 0
    assert follower.wait(DEADLINE_S) == 128 + signal.SIGTERM
    assert not os.path.exists(path)
