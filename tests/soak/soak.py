# SPDX-License-Identifier: Apache-2.0
"""Long runs; the arguments are their sizes. `scripts/ci soak PART NUMBER...` runs this in a world of test hosts.

loops NP RUNS         RUNS x horarun -np NP /bin/true: none may hang or fail
output RANKS MB       each rank prints MB megabytes, lines of its own length; their hashes are compared
reader RANKS SECONDS  ranks print as fast as they can, a reader takes 4 KB every 10 ms: memory is bounded
pair RUNS             two jobs of one user start at the same time on the same two hosts, use the same rendezvous
                      keys, and ship files of the same name: neither receives anything of the other
beats SECONDS         a job with ten times as many heartbeats as usual: neither memory nor descriptors grow;
                      beats 8640 sends as many as a day of the usual ones
outsiders SECONDS [LEASE_MS [NICE]]
                      the same, while two programs of another user keep 16,384 hostile connections to its rendezvous
                      (tests/integration/security/flood.py) and its ranks go on meeting there: it lives to the end, and
                      they cost the launcher 64 MiB at most. A machine that is busy besides takes a longer lease than
                      1000, or programs that are NICE: the launcher has no more than its share of the processors
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "integration")]
import conftest  # noqa: E402
import jobs  # noqa: E402

PYTHON = "/usr/bin/python3"
FLOOD = os.path.join(HERE, "..", "integration", "security", "flood.py")
HANG_S = 120


def loops(horarun, np, runs):
    times, failures = [], []
    for number in range(runs):
        began = time.monotonic()
        try:
            horarun.start("-np", np, "/bin/true").finish(timeout=HANG_S).expect(0)
        except AssertionError as error:
            failures.append(f"run {number}: {error}")
            print(failures[-1], flush=True)
        times.append(time.monotonic() - began)
        horarun.started.clear()
    times.sort()
    print(
        f"loops: {runs} x horarun -np {np} /bin/true: {len(failures)} hung or failed; "
        f"median {times[len(times) // 2] * 1000:.1f} ms, longest {times[-1] * 1000:.0f} ms"
    )
    return not failures


# The same bytes for the same rank, faster than a script could make them; lines of 61 to 3000 bytes.
STREAM = (
    "head -c {bytes} /dev/zero | openssl enc -aes-128-ctr -K $(printf %032d {rank}) "
    "-iv 00000000000000000000000000000000 | base64 -w $((61 + {rank} * 977 % 2940))"
)


def output(horarun, ranks, megabytes):
    size = megabytes * 750_000  # base64 makes 4 bytes out of 3
    began = time.monotonic()
    job = horarun.start(
        "-np", ranks, "sh", "-c", STREAM.format(bytes=size, rank="$HOROVOD_RANK"), stderr=subprocess.DEVNULL
    )
    hashes = [hashlib.sha256() for _ in range(ranks)]
    lengths = [0] * ranks
    wrong = 0
    for line in job.process.stdout:
        tag, separator, text = line.partition(b"]<stdout>:")
        if not separator or not tag[1:].isdigit():
            wrong += 1
            continue
        rank = int(tag[1:])
        hashes[rank].update(text)
        lengths[rank] += len(text)
    code = job.process.wait(HANG_S)
    seconds = time.monotonic() - began
    different = [
        rank
        for rank in range(ranks)
        if hashes[rank].hexdigest()
        != subprocess.run(
            ["sh", "-c", STREAM.format(bytes=size, rank=rank) + " | sha256sum"], capture_output=True, text=True
        ).stdout.split()[0]
    ]
    total = sum(lengths)
    print(
        f"output: {ranks} ranks x {megabytes} MB, {total / 1e6:.0f} MB in {seconds:.0f} s "
        f"({total / 1e6 / seconds:.0f} MB/s): exit {code},"
        f"{len(different)} ranks differ {different}, {wrong} lines without a tag"
    )
    return code == 0 and not different and not wrong


def status_of(pid, field):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(field + r":\s+(\d+) kB", file.read())[1])


def reader(horarun, ranks, seconds):
    job = horarun.start("-np", ranks, "yes", "a line of output that is not read in time")
    until, read = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        read += len(os.read(job.process.stdout.fileno(), 4096))
        time.sleep(0.01)
    launcher = status_of(job.pid, "VmHWM")
    agents = max(status_of(agent.pid, "VmHWM") for agent in jobs.agents())
    running = job.process.poll() is None
    job.send_signal(signal.SIGTERM)
    job.finish()
    print(
        f"reader: {ranks} ranks for {seconds} s, {read / 1e6:.1f} MB read: "
        f"launcher at most {launcher / 1024:.1f} MiB, agent {agents / 1024:.1f} MiB"
    )
    return running and launcher < 64 * 1024 and agents < 64 * 1024


MEET = """import http.client, os, sys
rank, size, word = int(os.environ['HOROVOD_RANK']), int(os.environ['HOROVOD_SIZE']), sys.argv[1]
where = os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'], int(os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT'])
link = http.client.HTTPConnection(*where, timeout=60)
head = {'Authorization': 'Bearer ' + os.environ['HORA_RENDEZVOUS_TOKEN']}
def ask(method, path, body=None):
    link.request(method, path, body, head)
    reply = link.getresponse()
    assert reply.status == 200, (path, reply.status)
    return reply.read().decode()
ask('PUT', '/meet/%d' % rank, word)
words = {ask('GET', '/meet/%d?wait=60' % peer) for peer in range(size)}
words |= {open('word').read(), os.environ['WORD'], input() if rank == 0 else word}
print(*sorted(words))
"""


def pair(horarun, runs):
    hosts = conftest.HostFactory()
    two = hosts(2)
    wrong, apart = [], []
    try:
        for number in range(runs):
            started = []
            for word in (f"one{number}", f"two{number}"):
                folder = os.path.join(horarun.cwd, word)
                os.mkdir(folder)
                with open(os.path.join(folder, "word"), "w") as file:
                    file.write(word)
                job = horarun.start(
                    "-H",
                    two.spec(2),
                    "--ship",
                    "word",
                    PYTHON,
                    "-S",
                    "-c",
                    MEET,
                    word,
                    cwd=folder,
                    env={"WORD": word},
                    stdin=subprocess.PIPE,
                )
                started.append((word, folder, job))
            apart.append(started[1][2].began - started[0][2].began)
            for word, folder, job in started:
                done = job.finish(f"{word}\n".encode(), HANG_S)
                if done.code != 0 or done.ranks() != {rank: [word] for rank in range(4)}:
                    wrong.append(number)
                    print(f"run {number}, {word}: {done}", flush=True)
                shutil.rmtree(folder)
            horarun.started.clear()
    finally:
        hosts.down()
    print(
        f"pair: {runs} pairs of jobs, begun at most {max(apart) * 1000:.0f} ms apart, 4 ranks each on the same 2 "
        f"hosts: {len(wrong)} with something of the other or failed {wrong[:9]}"
    )
    return not wrong


TICKS = """import time
while True:
    print('ready', flush=True)
    time.sleep({pause})
"""


LEASE_MS = 1000  # the shortest: a heartbeat goes both ways every quarter of it
USUAL_LEASE_MS = 10_000


def beats_in(seconds, lease_ms=LEASE_MS):
    beats = int(seconds * 4000 / lease_ms)
    return (
        f"{beats} heartbeats each way (those of {seconds * USUAL_LEASE_MS / lease_ms / 3600:.1f} h at the usual lease)"
    )


def figures_of(job):
    """KiB and descriptors of launcher, shim, agent"""
    return [
        (status_of(pid, "VmRSS"), len(os.listdir(f"/proc/{pid}/fd")))
        for pid in (job.pid, *sorted(a.pid for a in jobs.agents()))
    ]


def beats(horarun, seconds):
    """A line comes from each rank with each heartbeat."""
    messages = tempfile.TemporaryFile()
    job = horarun.start(
        "-np", 4, "--lease", f"{LEASE_MS}ms", PYTHON, "-S", "-c", TICKS.format(pause=LEASE_MS / 4000), stderr=messages
    )
    job.read_until("ready", 4)
    began = time.monotonic()
    first, lines = None, 0
    while (passed := time.monotonic() - began) < seconds and (chunk := os.read(job.process.stdout.fileno(), 65536)):
        lines += chunk.count(b"\n")
        if first is None and passed > min(60, seconds / 4):
            first = figures_of(job)
    alive = job.process.poll() is None
    last = figures_of(job) if alive else []
    job.send_signal(signal.SIGTERM)
    job.finish()
    if not alive:
        messages.seek(0)
        print(messages.read().decode(errors="replace"), flush=True)
    print(
        f"beats: {beats_in(passed)} and {lines} lines in {passed:.0f} s: "
        f"{'alive' if alive else 'ENDED'}; KiB and descriptors of launcher, shim, agent {first} -> {last}",
        flush=True,
    )
    return alive and all(b[0] <= a[0] + 512 and b[1] <= a[1] for a, b in zip(first, last))


# Each turn by a new connection, as a new client has to.
MEETINGS = """import http.client, os, time
rank = os.environ['HOROVOD_RANK']
where = os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'], int(os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT'])
head = {'Authorization': 'Bearer ' + os.environ['HORA_RENDEZVOUS_TOKEN']}
def ask(method, body=None):
    link = http.client.HTTPConnection(*where, timeout=60)
    try:
        link.request(method, '/soak/' + rank, body, head)
        reply = link.getresponse()
        return reply.status, reply.read().decode()
    finally:
        link.close()
print('at %s:%d.' % where, flush=True)
turn = 0
while True:
    try:
        began = time.monotonic()
        assert ask('PUT', str(turn))[0] == 200
        assert ask('GET') == (200, str(turn))
        print('met in', round(time.monotonic() - began, 3), flush=True)
    except ConnectionError as error:
        print('again', type(error).__name__, flush=True)
    turn += 1
    time.sleep({pause})
"""


def outsiders(horarun, seconds, lease_ms=LEASE_MS, nice=0):
    messages = tempfile.TemporaryFile()
    job = horarun.start(
        "-np",
        4,
        "--lease",
        f"{lease_ms}ms",
        PYTHON,
        "-S",
        "-c",
        MEETINGS.replace("{pause}", str(lease_ms / 4000)),
        stderr=messages,
    )
    where = re.search(r"at (\S+)\.\n", job.read_until("met", 4))[1]
    first, began = figures_of(job), time.monotonic()
    attackers = []
    for _ in range(2):
        with open(FLOOD) as script:
            attackers.append(
                subprocess.Popen(
                    ["nice", "-n", str(nice), PYTHON, "-", where, "8192", str(seconds)],
                    stdin=script,
                    stdout=subprocess.PIPE,
                    cwd="/",
                    user=65534,
                    group=65534,
                    extra_groups=[],
                )
            )
    text = b""
    while any(one.poll() is None for one in attackers) and (chunk := os.read(job.process.stdout.fileno(), 65536)):
        text += chunk
    passed = time.monotonic() - began
    alive = job.process.poll() is None
    peak = status_of(job.pid, "VmHWM") if alive else 0
    for one in attackers:
        one.kill() if not alive else None
        print("outsiders:", one.communicate()[0].decode().strip(), flush=True)
    if alive:  # their connections end with them
        jobs.wait_until(lambda: figures_of(job)[0][1] <= first[0][1] + 8, "the launcher's descriptors", 60)
    last = figures_of(job) if alive else []
    job.send_signal(signal.SIGTERM)
    job.finish()
    if not alive:
        messages.seek(0)
        print(messages.read().decode(errors="replace"), flush=True)
    met = sorted(float(time_s) for time_s in re.findall(rb"met in ([\d.]+)", text))
    print(
        f"outsiders: {beats_in(passed, lease_ms)} in {passed:.0f} s: {'alive' if alive else 'ENDED'}; "
        f"{len(met)} meetings, median {met[len(met) // 2]:.3f} s, "
        f"longest {met[-1]:.2f} s, {text.count(b'again')} cut off; launcher at most {peak - first[0][0]} KiB more; "
        f"KiB and descriptors of launcher, shim, agent {first} -> {last}",
        flush=True,
    )
    return alive and peak - first[0][0] <= 64 * 1024 and all(b[0] <= a[0] + 512 for a, b in zip(first[1:], last[1:]))


def main():
    parts = {"loops": loops, "output": output, "reader": reader, "pair": pair, "beats": beats, "outsiders": outsiders}
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    if not conftest.hosts_tool.in_world():
        sys.exit("soak: no test hosts here: as root, through scripts/ci soak")
    folder = tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    horarun = jobs.Horarun(conftest.BUILD, folder)
    try:
        good = parts[sys.argv[1]](horarun, *map(int, sys.argv[2:]))
        left = horarun.clean_up() + jobs.agents()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if left:
        print(f"processes that outlived their job: {left}")
    sys.exit(0 if good and not left else 1)


main()
