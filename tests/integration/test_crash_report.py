# SPDX-License-Identifier: Apache-2.0
"""Messages of a job that fails, and --report."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest


def test_hints_follow_the_last_lines(horarun):
    done = horarun.run("-np", 1, "python3", "-c", "import no_such_module_here").expect(1)
    assert "what it means: a Python module is missing on that host" in done.messages, done
    assert "what to do: install it in the same environment" in done.messages, done


def test_exit_codes_of_all_ranks(horarun):
    script = 'case $HOROVOD_RANK in 0) exit 5;; 1|2) trap "exit 9" TERM;; *) ;; esac; sleep 100 & wait'
    done = horarun.run("-np", 4, "--grace", "2s", "sh", "-c", script).expect(5)
    assert "rank 0" in done.messages and "exited with code 5" in done.messages, done


def test_memory_and_time_of_the_failing_rank(horarun):
    done = horarun.run("-np", 1, "python3", "-c", "x = bytearray(200 << 20); raise SystemExit(4)").expect(4)
    used = re.search(r"used at most ([\d.]+) MiB of memory", done.messages)
    assert used and float(used[1]) > 190, done


def test_timings_have_a_bill(horarun):
    done = horarun.run("-np", 2, "--timings", "true").expect(0)
    assert "peak memory" in done.messages and "all    user" in done.messages and "|" in done.messages, done


def test_the_report_as_json(horarun, tmp_path):
    path = tmp_path / "report.json"
    horarun.run(
        "-np",
        3,
        "--report",
        path,
        "sh",
        "-c",
        '[ $HOROVOD_RANK = 2 ] && { echo "oh dear" >&2; exit 7; }; exec sleep 50',
        "--api-token=abc123",
    ).expect(7)
    report = json.loads(path.read_text())
    assert report["schema"] == 1 and report["exit_code"] == 7 and report["world_size"] == 3
    assert report["cause"] == {"kind": "rank", "host": "localhost", "rank": 2}
    assert report["command"][-1] == "--api-token=***" and "abc123" not in path.read_text()
    ranks = {rank["rank"]: rank for rank in report["ranks"]}
    assert ranks[2]["exit_code"] == 7 and "oh dear" in ranks[2]["last_stderr"]
    assert ranks[0]["ended_by_us"] and ranks[1]["ended_by_us"]
    stages = [step["stage"] for step in report["hosts"][0]["stages"]]
    assert stages[-1] == "ranks" and "agent" in stages, stages
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_the_report_to_a_descriptor(horarun, folder):
    """As a shell's >(program): no process of the job holds it open."""
    ours, theirs = os.pipe()
    job = horarun.start(
        "--report", f"{folder}/{theirs}", "-np", 1, "sh", "-c", "sleep 1000 & exit 3", pass_fds=[theirs]
    )
    os.close(theirs)
    with open(ours, encoding="utf-8") as pipe:
        assert json.load(pipe)["exit_code"] == 3
    job.finish().expect(3)


def test_the_report_as_a_page(horarun, tmp_path):
    path = tmp_path / "report.html"
    script = 'echo "<b>&" >&2; [ "$HOROVOD_RANK" = 1 ] || exit 3; exec sleep 1000'
    horarun.run("-np", 2, "--report", path, "sh", "-c", script).expect(3)
    page = path.read_text()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert "&lt;b&gt;&amp;" in page and "<b>&" not in page
    assert not re.search(r"<script|https?://|<link|<img|url\(", page), "it loads something"
    for word in ("exit code 3", "agent", "rank 0", "localhost"):
        assert word in page


# Runs in the page, in a frame as wide as a phone or a laptop, and writes down what a reader sees.
MEASURE = """
const sees = {};
for (const width of [390, 1280]) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `border:0;height:844px;width:${width}px`;
  document.body.append(frame);
  frame.contentDocument.open(); frame.contentDocument.write(page); frame.contentDocument.close();
  const seen = frame.contentDocument;
  const one = (of) => seen.querySelector(of);
  const colour = (of) => [...seen.querySelectorAll(of)].map((e) => getComputedStyle(e).color);
  sees[width] = {
    wide: seen.documentElement.scrollWidth,
    cut: [...seen.querySelectorAll("pre,p,td,h1")].filter((e) => e.scrollWidth > e.clientWidth + 1).length,
    fix: one(".fix")?.getBoundingClientRect().bottom, text: one("pre")?.getBoundingClientRect().top,
    charts: [...seen.querySelectorAll("svg")].map((e) => e.getBoundingClientRect().width),
    bare: [...seen.querySelectorAll("td")].filter((e) => !e.dataset.is).length,
    ended: colour("td.ended"), bad: colour("td.bad"), ok: colour("td.ok"), whole: seen.body.innerText,
  };
}
document.title = "measured";
document.body.innerHTML = "<pre id=sees></pre>";
document.getElementById("sees").textContent = JSON.stringify(sees);
"""


def shown_by_a_browser(path, tmp_path):
    """What MEASURE finds in that page, by width; nothing is cut off, and on a phone, too, each cell says what it is."""
    page = json.dumps(path.read_text()).replace("</", "<\\/")
    (tmp_path / "measure.html").write_text(
        f"<!doctype html><meta charset=utf-8><body><script>const page = {page};{MEASURE}</script>"
    )
    browser = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path}/profile",
    ]
    dom = subprocess.run(
        [*browser, "--window-size=1400,1000", "--dump-dom", f"file://{tmp_path}/measure.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    ).stdout
    sees = json.loads(html.unescape(re.search(r'<pre id="sees">(.*?)</pre>', dom, re.S)[1]))
    sees = {width: sees[str(width)] for width in (390, 1280)}
    for width, seen in sees.items():
        assert seen["wide"] <= width and seen["cut"] == seen["bare"] == 0, (width, seen)
    return sees


in_a_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")


@in_a_browser
def test_the_page_in_a_browser(horarun, tmp_path):
    """Nothing is cut off on a phone, the fix is on its first screen, and only the rank that failed is red."""
    path = tmp_path / "report.html"
    script = 'echo "$0: Permission denied" >&2; [ "$HOROVOD_RANK" = 1 ] && exit 3; exec sleep 1000'
    horarun.run("-np", 2, "--report", path, "sh", "-c", script, "/very/long/" + "x" * 200).expect(3)
    for width, seen in shown_by_a_browser(path, tmp_path).items():
        assert seen["fix"] <= seen["text"] and seen["fix"] < 844, (width, seen)
        assert len(seen["bad"]) == len(seen["ended"]) == 1 and seen["bad"] != seen["ended"], seen
        red, green, blue = map(int, re.findall(r"\d+", seen["ended"][0])[:3])
        assert max(red, green, blue) - min(red, green, blue) < 20, "ended ranks are grey"
        assert "2 ranks on 1 host," in seen["whole"] and re.search(r"\d ms", seen["whole"]), seen
        # Once in the lines of rank 1; those of rank 0 are folded.
        assert seen["whole"].count("x: Permission denied") == 1, seen


def test_the_report_has_what_each_host_was_sent(horarun, hosts, tmp_path):
    files = [tmp_path / "report.json", tmp_path / "report.html"]
    reports = [word for file in files for word in ("--report", file)]
    two = hosts(2)
    for k in (1, 2):
        two.execute(k, "sh", "-c", "rm -rf /root/.cache/hora /tmp/hora-0 /dev/shm/hora-0")
    horarun.run("-H", two.spec(1), *reports, "true").expect(0)
    sent = [host["sent_bytes"] for host in json.loads(files[0].read_text())["hosts"]]
    shown = re.findall(r"; ([\d.]+) MiB sent</small>", files[1].read_text())
    assert len(sent) == 2 and min(sent) > 100 and shown == [f"{bytes / (1 << 20):.1f}" for bytes in sent], (sent, shown)
    horarun.run("-H", two.spec(1), *reports, "true").expect(0)
    assert [host["sent_bytes"] for host in json.loads(files[0].read_text())["hosts"]] == [0, 0]


SLOW = """
import time
import hora.numpy as hvd
hvd.init()
began = time.monotonic()
while hvd.allreduce([time.monotonic() - began], name="time", op=hvd.Min)[0] < 6:
    if hvd.rank() == 1: time.sleep(0.05)
"""


@in_a_browser
def test_the_page_of_a_slow_job_in_a_browser(horarun, tmp_path):
    path = tmp_path / "report.html"
    horarun.run("-np", 2, "--report", path, "python3", "-c", SLOW).expect(0)
    for width, seen in shown_by_a_browser(path, tmp_path).items():
        assert re.search(r"rank 1 on localhost: the others waited [\d.]+ s for it, \d+% of", seen["whole"]), seen
        assert re.search(r"Memory of all ranks: at most [\d.]+ MiB", seen["whole"]), seen
        assert "The 0s" not in seen["whole"] and len(seen["charts"]) >= 3, seen
        assert all(width / 2 < chart <= width for chart in seen["charts"]), (width, seen)


@in_a_browser
def test_the_page_of_the_doctor_in_a_browser(horarun, hosts, tmp_path):
    """What is wrong and its fix come first, then a row for each host."""
    two = hosts(2)
    page, document = tmp_path / "doctor.html", tmp_path / "doctor.json"
    words = ("doctor", "-H", f"node1,node2,no-such-host-{'x' * 60}", "--report", page, "--report", document)
    horarun.run(*words).expect(1)
    for width, seen in shown_by_a_browser(page, tmp_path).items():
        assert seen["fix"] < 844 and len(seen["bad"]) == 1 and seen["whole"].count("What to do:") >= 1, (width, seen)
        assert re.search(r"3 hosts examined in [\d.]+ s: \d+ errors?, ", seen["whole"]), seen
        assert all(host in seen["whole"] for host in two.names), seen
    report = json.loads(document.read_text())
    assert len(report["hosts"]) == 3 and report["findings"], report


@in_a_browser
def test_the_page_of_figures_in_a_browser(build, tmp_path):
    """On a phone one picture is below the other, and the axes can still be read."""
    figures, page = tmp_path / "sum.csv", tmp_path / "sum.html"
    rows = "".join(f"{4**power},{2**power * 1.5},{power / 10}\n" for power in range(1, 14))
    figures.write_text("bytes,median_us,busbw_gbs\n" + rows)
    plot = [os.path.join(build, "bin", "hora-perf"), "plot", "-o", page, f"a < b={figures}"]
    subprocess.run(plot, check=True, timeout=60)
    for width, seen in shown_by_a_browser(page, tmp_path).items():
        assert len(seen["charts"]) == 2 and all(300 < chart <= width for chart in seen["charts"]), (width, seen)
        assert seen["whole"].count("a < b") >= 2 and "16 KiB" in seen["whole"], seen
        assert "12288 us" in seen["whole"], seen


def test_a_report_that_can_no_longer_be_written(horarun, tmp_path):
    """The ranks succeeded; the missing report is an error all the same."""
    folder = tmp_path / "folder"
    folder.mkdir()
    done = horarun.run("-np", 1, "--report", folder / "r.json", "rmdir", folder).expect(125)
    assert "E_REPORT" in done.messages and str(folder) in done.messages


def test_a_report_of_another_kind(horarun):
    done = horarun.run("-np", 1, "--report", "r.pdf", "true").expect(2)
    assert ".json or .html" in done.messages


@pytest.mark.skipif(os.cpu_count() < 2, reason="one CPU")
def test_binding(horarun):
    script = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    done = horarun.run("-np", 2, "--bind", "core", "python3", "-c", script).expect(0)
    cpus = [eval(lines[0].rsplit(" ", 1)[0]) for lines in done.ranks().values()]
    assert not set(cpus[0]) & set(cpus[1]), done
    assert "rank 0: CPU" in done.messages and "OMP_NUM_THREADS=" in done.messages, done
    own = horarun.run("-np", 1, "sh", "-c", "echo $OMP_NUM_THREADS", env={"OMP_NUM_THREADS": "7"}).expect(0)
    assert own.ranks() == {0: ["7"]}


def test_gpus_per_rank(horarun):
    done = horarun.run(
        "-np",
        2,
        "--gpus-per-rank",
        2,
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
        env={"CUDA_VISIBLE_DEVICES": "4,5,6,7"},
    ).expect(0)
    assert done.ranks() == {0: ["4,5"], 1: ["6,7"]}


@pytest.mark.parametrize(
    "visible, options, why",
    [
        ("0", ("--gpus-per-rank", 1), "2 ranks of this host need 2 GPUs, and there is 1"),
        ("", ("--gpus-per-rank", 1), "and there are 0"),
        ("NoDevFiles", ("--gpus-per-rank", 1), "and there are 0"),
        ("0,-1,1", ("--gpus-per-rank", 1), "and there is 1"),
        ("0,1,2", ("--gpus-per-rank", 2), "2 ranks of this host need 4 GPUs, and there are 3"),
        ("1,1", ("--gpus-per-rank", 1), "names GPU 1 twice"),
        ("MIG-a,MIG-b", ("--gpus-per-rank", 2), "a process uses one MIG device"),
    ],
)
def test_no_two_ranks_share_a_gpu(horarun, visible, options, why):
    done = horarun.run("-np", 2, *options, "echo", "ran", env={"CUDA_VISIBLE_DEVICES": visible}).expect(2)
    assert why in done.messages and "E_USAGE" in done.messages and not done.text, done


def test_gpus_by_uuid_and_of_programs(horarun):
    show = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    for visible in ("GPU-a,GPU-b", "MIG-a,MIG-b"):
        done = horarun.run("-np", 2, "--gpus-per-rank", 1, *show, env={"CUDA_VISIBLE_DEVICES": visible}).expect(0)
        assert done.ranks() == dict(enumerate([one] for one in visible.split(","))), done
    own = (":", "-np", 2, "-x", "CUDA_VISIBLE_DEVICES=5,1", *show)
    done = horarun.run("-np", 1, "--gpus-per-rank", 1, *show, *own, env={"CUDA_VISIBLE_DEVICES": "0"}).expect(0)
    assert done.ranks() == {0: ["0"], 1: ["5"], 2: ["1"]}, done
    done = horarun.run("-np", 1, "--gpus-per-rank", 1, *show, *own, env={"CUDA_VISIBLE_DEVICES": "1"}).expect(2)
    assert "rank 0 and rank 2 would share GPU 1" in done.messages, done
    # JAX would take the one with the number of the local rank.
    show_jax = ("sh", "-c", "echo $JAX_LOCAL_DEVICE_IDS")
    two = ("-np", 2, "--gpus-per-rank", 2, *show_jax)
    assert horarun.run(*two, env={"CUDA_VISIBLE_DEVICES": "4,5,6,7"}).expect(0).ranks() == {0: ["0,1"], 1: ["0,1"]}
    own = {"CUDA_VISIBLE_DEVICES": "4,5,6,7", "JAX_LOCAL_DEVICE_IDS": "1"}
    assert horarun.run(*two, env=own).expect(0).ranks() == {0: ["1"], 1: ["1"]}
    # Sharing is asked for.
    done = horarun.run("-np", 2, "--gpus-per-rank", "auto", *show, env={"CUDA_VISIBLE_DEVICES": "3"}).expect(0)
    assert done.ranks() == {0: ["3"], 1: ["3"]}, done


LEAVES = """
import sys
import hora.numpy as hvd
hvd.init()
for step in range(10):
    if hvd.rank() == 1 and step == 3:
        {leave}
    hvd.allreduce([1.0], name="grad")
"""


def test_a_failure_is_distinguished_from_those_that_follow_it(horarun):
    done = horarun.run("-np", 4, "python3", "-c", LEAVES.format(leave="raise ValueError('bad batch')")).expect(1)
    assert "horarun: rank 1 on localhost " in done.messages and "ValueError: bad batch" in done.messages, done
    assert re.search(r"exit code 1: rank \d; ranks? [\d,-]+ failed because of it", done.messages), done
    assert "failed after it" not in done.messages, done


def test_a_rank_that_leaves_while_others_wait_is_named(horarun):
    done = horarun.run("-np", 4, "python3", "-c", LEAVES.format(leave="sys.exit(0)")).expect(1)
    wanted = r"horarun: rank 1 on localhost left first, with exit code 0; rank [023] on localhost exited with code 1"
    assert re.search(wanted, done.messages), done
    assert "the same number of steps" in done.messages, done


FOLLOWS = """
import threading
import hora.numpy as hvd
hvd.init()
def work():
    try:
        for step in range(10):
            if hvd.rank() == 1 and step == 3:
                raise ValueError("bad batch")
            hvd.allreduce([1.0], name="grad")
    except hvd.HorovodInternalError as error:
        if hvd.rank() == 2:
            raise RuntimeError("no step") from error
        raise
if hvd.rank() == 3:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise SystemExit(1)
work()
"""


@pytest.mark.parametrize("options", [[], ["--verbose"], ["--no-prefix-output"]], ids=" ".join)
def test_each_rank_that_only_follows_is_one_line(horarun, tmp_path, options):
    """And the traceback of the one that failed is whole; in the files all are."""
    (tmp_path / "train.py").write_text(FOLLOWS)
    options = ["-np", 6, "--output-filename", tmp_path / "out", *options]
    done = horarun.run(*options, "python3", tmp_path / "train.py").expect(1)
    files = [(tmp_path / f"out/rank.{rank}/stderr").read_text() for rank in range(6)]
    for rank, text in enumerate(files):
        assert f'{tmp_path}/train.py", line {9 if rank == 1 else 10}, in work' in text, text
    assert "RuntimeError: no step" in files[2], files[2]
    shown = done.messages
    lines = re.findall(r"rank (\d) failed because of rank 1: (.*)", shown)
    if len(options) > 4:
        assert not lines and shown.count("Traceback (most recent call last)") > 6, done
        return
    assert sorted(rank for rank, line in lines) == list("02345"), done
    where = (
        re.escape(str(tmp_path))
        + r"/train.py:10, in work: hvd.allreduce\(.*\): HorovodInternalError: .*rank 1 \(.*\) has shut down"
    )
    assert all(re.match(where, line) for rank, line in lines), lines
    assert dict(lines)["2"].count("; then RuntimeError: no step") == 1, lines
    assert shown.count("[1]<stderr>:Traceback") == 1 and "[1]<stderr>:ValueError: bad batch" in shown, done
    assert shown.count("Traceback") == 2, done  # once more in the message about rank 1
