# SPDX-License-Identifier: Apache-2.0
"""Secrets of a job are not visible to other users."""

import os
import signal
import subprocess
import uuid

import pytest

import jobs

PYTHON = "/usr/bin/python3"
# Writes its token to a file that only the test reads; stays until it may go on.
RANK = """import os, sys, time
rank = os.environ['HOROVOD_RANK']
if rank == '0':
    with open(sys.argv[1] + '.new', 'w') as file:
        file.write(os.environ['HORA_RENDEZVOUS_TOKEN'] + ' ' + str(os.getpid()))
    os.rename(sys.argv[1] + '.new', sys.argv[1])
deadline = time.monotonic() + 60
while not os.path.exists(sys.argv[1] + '.go') and time.monotonic() < deadline:
    time.sleep(0.01)
print('rank', rank, 'speaks', flush=True)
sys.exit(int(sys.argv[2]))
"""


def command_lines():
    """Of every process here and on the test hosts, which share the process tree."""
    lines = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    lines.append(file.read().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                pass
    return lines


def run_and_look(horarun, shared, arguments, code, look=lambda token, job: None):
    """(the token, all that the job said)"""
    place = os.path.join(shared, "secret-" + uuid.uuid4().hex)
    job = horarun.start(*arguments, PYTHON, "-S", "-c", RANK, place, code)
    jobs.wait_until(lambda: os.path.exists(place), "rank 0's token", 60)
    with open(place) as file:
        token, _pid = file.read().split()
    assert len(token) >= 32
    seen = [line for line in command_lines() if token in line]
    assert not seen, f"the token is in a command line: {seen}"
    look(token, job)
    open(place + ".go", "w").close()
    done = job.finish().expect(code)
    os.unlink(place)
    os.unlink(place + ".go")
    return token, done


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("form", ["json", "text"])
def test_the_token_is_in_no_command_line_log_or_report(horarun, hosts, shared, tmp_path, code, form):
    two = hosts(2)
    report = tmp_path / f"report.{'json' if form == 'json' else 'html'}"
    options = ["--verbose", "--timings", "--report", report, "--output-filename", tmp_path / "out"]
    if form == "json":
        options.append("--json")
    token, done = run_and_look(horarun, shared, ["-H", two.spec(1), *options], code)
    assert token not in done.text and token not in done.messages, done
    assert report.stat().st_size > 100
    for folder, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(folder, name), errors="replace") as file:
                assert token not in file.read(), name
    for k in (1, 2):
        found = two.execute(k, "sh", "-c", f"grep -rl {token} /tmp /dev/shm /root /run /var/log 2>/dev/null || :")
        assert not found, f"node{k}: {found}"


def test_two_jobs_have_two_tokens(horarun, shared):
    tokens = {run_and_look(horarun, shared, ["-np", 1], 0)[0] for _ in range(2)}
    assert len(tokens) == 2


def test_another_user_sees_neither_environment_nor_memory_of_a_rank(horarun, shared):
    """What the kernel promises; here so that no change takes it away (a set-uid agent, PR_SET_DUMPABLE)."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")

    def look(token, job):
        mine = jobs.processes_of(job.mark)
        assert len(mine) >= 2, mine
        for process in mine:
            for name in ("environ", "mem", "fd"):
                shown = subprocess.run(
                    [
                        "setpriv",
                        "--reuid",
                        "65534",
                        "--regid",
                        "65534",
                        "--clear-groups",
                        "--",
                        "sh",
                        "-c",
                        f"cat /proc/{process.pid}/{name}/* /proc/{process.pid}/{name}",
                    ],
                    capture_output=True,
                    timeout=20,
                )
                assert token.encode() not in shown.stdout, (process, name)
                assert b"Permission denied" in shown.stderr, (process, name, shown)

    run_and_look(horarun, shared, ["-np", 1], 0, look)


def test_stack_traces_of_another_user_are_not_taken(horarun):
    """The name of the agent's socket is random, but /proc/net/unix shows it to all: who connects is asked for."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    job = horarun.start("-np", 1, "sh", "-c", "echo at $HORA_STACKS; sleep 1000")
    name = job.read_until("\n").split()[-1]
    with open("/proc/net/unix") as sockets:
        assert f"@{name}\n" in sockets.read()
    connect = (
        "import socket, sys; link = socket.socket(socket.AF_UNIX); link.connect('\\0' + sys.argv[1])\n"
        "link.settimeout(20)\n"
        "try: print(link.recv(1) == b'')\nexcept ConnectionResetError: print(True)"
    )
    outsider = subprocess.run(
        [PYTHON, "-S", "-c", connect, name],
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert outsider.stdout == "True\n", outsider
    job.send_signal(signal.SIGTERM)
    job.finish().expect(128 + 15)


def test_a_dry_run_shows_no_token(horarun):
    """There is none yet; what is shown says so."""
    done = horarun.run("--dry-run", "-np", 2, "true", env={"HORA_RENDEZVOUS_TOKEN": "of-another-job"}).expect(0)
    assert "of-another-job" not in done.text + done.messages


@pytest.mark.parametrize("runtime", ["hora", "host"])
def test_a_job_within_a_job_does_not_get_the_outer_token(horarun, runtime):
    """A job of its own runtime has a token that takes the other's place. One of the host's has none."""
    done = horarun.run(
        "-np",
        1,
        "--runtime",
        runtime,
        "env",
        env=dict.fromkeys(("HORA_RENDEZVOUS_TOKEN", "HORA_ANY_SECRET", "_HOROVOD_SECRET_KEY"), "stolen"),
    )
    assert "stolen" not in done.expect(0).text and "HOROVOD_RANK=0" in done.text, done


def test_what_a_job_leaves_or_holds_is_its_users_alone(horarun, hosts, shared, tmp_path):
    """Caches, the job's folder, shared memory: no other user may read the first two or write any."""
    two = hosts(2)
    file = tmp_path / "data.txt"
    file.write_text("shipped")

    def look(token, job):
        for k in (1, 2):
            listing = two.execute(
                k,
                "sh",
                "-c",
                "find /tmp /dev/shm /root/.cache/hora ! -type l -printf '%U %m %y %p\\n' 2>/dev/null || :",
            )
            entries = [line.split(maxsplit=3) for line in listing.splitlines()]
            ours = [entry for entry in entries if "hora" in entry[3]]
            assert any(path.startswith("/tmp/hora-job-") for _, _, _, path in ours), listing
            for owner, mode, kind, path in ours:
                assert owner == "0", path
                assert int(mode, 8) & 0o022 == 0, f"{path} may be written by others: {mode}"
            for path in (
                "/root/.cache/hora",
                *{p for _, _, kind, p in ours if kind == "d" and p.startswith("/tmp/hora-job-") and p.count("/") == 2},
            ):
                mode = next(m for _, m, _, p in ours if p == path)
                assert mode == "700", f"{path} is open to others: {mode}"

    run_and_look(horarun, shared, ["-H", two.spec(1), "--ship", file], 0, look)


def core_pattern():
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as pattern:
        return pattern.read().strip()


@pytest.mark.skipif(core_pattern() != "core", reason="the kernel puts core files elsewhere")
def test_a_core_file_of_a_rank_is_its_users_alone(horarun, tmp_path):
    """It has the rank's variables, the token among them; a limit of 0 reaches the ranks."""
    for limit in ("unlimited", "0"):
        folder = tmp_path / limit
        folder.mkdir()
        subprocess.run(
            [
                *("sh", "-c", f'ulimit -S -c {limit}; exec "$@"', "sh", horarun.path, "-np", "1", "--wdir", folder),
                *("sh", "-c", "umask 0; echo $HORA_RENDEZVOUS_TOKEN >token; kill -SEGV $$"),
            ],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert sorted(os.listdir(folder)) == (["token"] if limit == "0" else ["core", "token"])
    core, token = tmp_path / "unlimited" / "core", tmp_path / "unlimited" / "token"
    assert core.stat().st_mode & 0o777 == 0o600
    assert len(token.read_bytes().strip()) == 32 and token.read_bytes().strip() in core.read_bytes()
