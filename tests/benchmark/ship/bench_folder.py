#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder (--ship) or a Python environment (--ship-env) to test hosts, next to rsync and tar over ssh: time, bytes.
Called by ./run folder.

Three launches of /bin/true: to hosts that have nothing of it, with nothing changed, with one file changed. rsync does
the same to a folder of each host, all hosts at a time; tar sends everything each time, so it has the first column
alone. The ways take turns within each round; times are medians. The bytes are those that this machine's bridge has
sent to all hosts, with all headers. Hora's times are those of whole jobs; before the first round a job has brought
agent and runtime.
"""

import argparse
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_ship import CACHES, HOSTS, REPOSITORY, bridge, sent_bytes

LIMIT_S = 900
STATES = ("first", "unchanged", "one file changed")


def run_all(commands, what):
    """Runs them at one time; all must succeed."""
    running = [subprocess.Popen(each, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, shell=isinstance(each, str))
               for each in commands]  # fmt: skip
    for process in running:
        if process.wait(LIMIT_S):
            sys.exit(f"bench_folder: {what} failed with {process.returncode}")


def on_hosts(nodes, script):
    run_all([[HOSTS, "exec", node, "sh", "-c", script] for node in nodes], script)


class Hora:
    def __init__(self, options, folder, memory):
        self.argv = [os.path.join(options.build, "bin", "horarun"), "--start-timeout", f"{LIMIT_S}s"]
        self.ship = ["--ship-env" if options.environment else "--ship", str(folder), "--ship-max-size", "0"]
        if options.environment:
            self.ship = self.ship[:2]
        self.environment = {**os.environ, "XDG_CACHE_HOME": memory}
        self.memory = memory

    def forget(self, nodes):
        on_hosts(nodes, f"rm -rf {CACHES}")
        shutil.rmtree(os.path.join(self.memory, "hora-launcher"), ignore_errors=True)
        self._launch(nodes, [])

    def send(self, nodes):
        self._launch(nodes, self.ship)

    def _launch(self, nodes, ship):
        argv = [*self.argv, "-H", ",".join(f"{node}:1" for node in nodes), *ship, "/bin/true"]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, env=self.environment
        )
        if done.returncode:
            sys.exit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}")


class Rsync:
    def __init__(self, options, folder, memory):
        self.folder, self.words = folder, [*options.rsync.split(), "-a", "--delete", "--exclude=__pycache__"]
        if options.environment:
            self.words = self.words[:-1]

    def forget(self, nodes):
        on_hosts(nodes, "rm -rf /root/rsync")

    def send(self, nodes):
        run_all([[*self.words, f"{self.folder}/", f"{node}:rsync/"] for node in nodes], "rsync")


class Tar:
    only_first = True

    def __init__(self, options, folder, memory):
        self.folder = folder

    def forget(self, nodes):
        on_hosts(nodes, "rm -rf /root/tar && mkdir /root/tar")

    def send(self, nodes):
        command = "tar -c -C {} . | ssh {} tar -x -C tar"
        run_all([command.format(self.folder, node) for node in nodes], "tar | ssh")


def copy_of(folder, place):
    """Its own, whose files may be changed: hard links, and a copy of the one file."""
    copy = pathlib.Path(place, pathlib.Path(folder).name)
    subprocess.run(["cp", "-al", folder, copy], check=True)
    changing = next(path for path in sorted(copy.rglob("*.py")) if 1000 < path.stat().st_size < 100_000)
    text = changing.read_bytes()
    changing.unlink()
    changing.write_bytes(text)
    return copy, changing


def change(path, turn):
    with open(path, "a") as file:
        file.write(f"# {turn}\n")


def measure(ways, nodes, changing, rounds):
    """(way, state) -> [(seconds, bytes)]"""
    interface = bridge()
    results = {(way, state): [] for way in ways for state in STATES}
    for turn in range(rounds):
        for name in ways if turn % 2 else reversed(ways):
            way = ways[name]
            way.forget(nodes)
            for state in STATES[:1] if hasattr(way, "only_first") else STATES:
                if state == STATES[2]:
                    change(changing, f"{turn} {name}")
                    time.sleep(0.2)  # beyond the tick of the file system's clock, as in life
                before, began = sent_bytes(interface), time.perf_counter()
                way.send(nodes)
                results[name, state].append((time.perf_counter() - began, sent_bytes(interface) - before))
    return results


def table(results, ways):
    def cell(way, state):
        times = results[way, state]
        if not times:
            return "-"
        seconds, sent = (statistics.median(each[i] for each in times) for i in (0, 1))
        return f"{seconds:.2f} s, {sent / 1e6:.1f} MB" if sent > 1e5 else f"{seconds:.2f} s, {sent / 1e3:.0f} kB"

    def ratio(state):
        mine, other = (statistics.median(each[0] for each in results[way, state]) for way in ways[:2])
        return f"{other / mine:.2f}"

    print("| | " + " | ".join(ways) + " | rsync / Hora |\n" + "|---" * (len(ways) + 2) + "|")
    for state in STATES:
        print(f"| {state} | " + " | ".join(cell(way, state) for way in ways) + f" | {ratio(state)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=os.path.abspath, metavar="DIR")
    parser.add_argument("--environment", action="store_true", help="FOLDER is a Python environment: --ship-env")
    parser.add_argument("--hosts", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rsync", default="rsync", help="the command, such as 'rsync -z'")
    parser.add_argument("folder", type=os.path.abspath)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hora-folder-", dir=os.path.dirname(options.folder)) as place:
        folder, changing = copy_of(options.folder, place)
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        size = sum(path.stat().st_size for path in files)
        print(f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}; "
              f"{len(files)} files, {size / 1e6:.0f} MB, {options.rounds} rounds")  # fmt: skip
        ways = {"Hora": Hora, options.rsync: Rsync, "tar \\| ssh": Tar}
        for count in options.hosts:
            hide = [word for path in {REPOSITORY, os.path.realpath(options.build), place} for word in ("--hide", path)]
            subprocess.run([HOSTS, "up", str(count), *hide], check=True, stdout=subprocess.DEVNULL)
            try:
                nodes = [f"node{k}" for k in range(1, count + 1)]
                made = {name: kind(options, folder, os.path.join(place, "cache")) for name, kind in ways.items()}
                print(f"\n{count} host{'s' if count > 1 else ''}\n", flush=True)
                table(measure(made, nodes, changing, options.rounds), list(made))
            finally:
                subprocess.run([HOSTS, "down"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
