#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rendezvous server next to nginx, and what a job's wire-up costs.  Called by ./run.

  serve    GET of a 64-byte value at 1, 64 and 1024 connections, kept alive and closing, by wrk; nginx
           answers the same bytes from its configuration (`return 200`), which is its fastest way
  wire-up  64 processes meet in six scopes: Hora's way (a write and a waiting read each) and Horovod's
           (each peer's key polled every 10 ms, then fetched, a connection per request), same server

The servers take turns within each round, in an order that changes; what is printed are medians.
"""

import argparse
import json
import os
import platform
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

VALUE = ("0123456789abcdef" * 4).encode()
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


class Server:
    """A child process with an address; ends with the `with` block."""

    def __init__(self, name, command, port, wait_for_line=None):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if wait_for_line:
            line = self.process.stdout.readline().decode()
            match = re.search(wait_for_line, line)
            if not match:
                self.close()
                raise RuntimeError(f"{name} said {line!r}")
            self.port = int(match[1])
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError as error:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.close()
                    raise RuntimeError(f"{name} does not listen on port {self.port}") from error
                time.sleep(0.02)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def hora_server(build):
    server = Server(
        "hora",
        [os.path.join(build, "bin", "hora-rendezvous-standalone"), "--address", "127.0.0.1:0"],
        0,
        r"listening on 127\.0\.0\.1:(\d+)",
    )
    urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{server.port}/global/0", data=VALUE, method="PUT")
    ).close()
    return server


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nginx_server(folder, workers):
    port = free_port()
    path = os.path.join(folder, f"nginx-{workers}.conf")
    with open(path, "w") as file:
        file.write(f"""
worker_processes {workers};
daemon off;
pid {folder}/nginx-{workers}.pid;
error_log {folder}/nginx-{workers}.log;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "{VALUE.decode()}"; }} }}
}}
""")
    return Server(f"nginx {workers}", ["nginx", "-e", f"{folder}/nginx-{workers}.log", "-p", folder, "-c", path], port)


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * UNITS[unit]


def wrk(port, path, connections, closing, seconds):
    command = ["wrk", "--latency", "-t1", f"-c{connections}", f"-d{seconds}s", f"http://127.0.0.1:{port}{path}"]
    if closing:
        command += ["-H", "Connection: close"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=seconds + 60).stdout
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    return {
        "per_second": float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]),
        "p50_ms": milliseconds(re.search(r"^\s+50%\s+(\S+)$", text, re.M)[1]),
        "p99_ms": milliseconds(re.search(r"^\s+99%\s+(\S+)$", text, re.M)[1]),
        "errors": sum(map(int, errors.groups())) if errors else 0,
        "bad_replies": int(bad[1]) if bad else 0,
    }


def serve(options):
    rows, order = [], random.Random(1)
    with tempfile.TemporaryDirectory(prefix="hora-bench-") as folder, hora_server(options.build) as hora:
        peers = [nginx_server(folder, workers) for workers in options.nginx_workers] if shutil.which("nginx") else []
        try:
            for connections in options.connections:
                for closing in (False, True):
                    samples = {server.name: [] for server in [hora, *peers]}
                    for turn in range(options.rounds + 1):
                        servers = [hora, *peers]
                        order.shuffle(servers)
                        for server in servers:
                            sample = wrk(server.port, "/global/0", connections, closing, options.seconds if turn else 1)
                            if turn:
                                samples[server.name].append(sample)
                    rows.append(
                        {
                            "connections": connections,
                            "closing": closing,
                            "samples": samples,
                            "median": {
                                name: {key: round(statistics.median(s[key] for s in taken), 3) for key in taken[0]}
                                for name, taken in samples.items()
                            },
                        }
                    )
        finally:
            for peer in peers:
                peer.close()
    names = [hora.name, *(peer.name for peer in peers)]
    print("\nGET of 64 bytes by wrk (nginx N = N worker processes; ours is one thread)\n")
    print(
        "| connections | | "
        + " | ".join(f"{n} /s | p99" for n in names)
        + " | "
        + " | ".join(f"hora / {n}" for n in names[1:])
        + " |"
    )
    print("|---" * (2 + 2 * len(names) + len(names) - 1) + "|")
    ok = True
    for row in rows:
        median = row["median"]
        cells = [f"{median[n]['per_second']:,.0f} | {median[n]['p99_ms']:.2f} ms" for n in names]
        ratios = [f"{median['hora']['per_second'] / median[n]['per_second']:.2f}" for n in names[1:]]
        print(
            f"| {row['connections']} | {'closing' if row['closing'] else 'kept alive'} | "
            + " | ".join(cells + ratios)
            + " |"
        )
        if row["connections"] == 64 and peers:
            best = max(median[n]["per_second"] for n in names[1:])
            row["within_bar"] = median["hora"]["per_second"] >= 0.8 * best
            ok = ok and row["within_bar"]
        ok = ok and not any(s["errors"] or s["bad_replies"] for s in row["samples"]["hora"])
    print(f"\nbar: 0.8 x nginx at 64 connections, no error of ours: {'ok' if ok else 'MISSED'}")
    return {"rows": rows, "within_bar": ok}


def wire_up(options):
    results = {}
    for way in ("batch", "classic"):
        taken = []
        for _ in range(options.rounds):
            with hora_server(options.build) as server:
                command = [
                    os.path.join(options.build, "bin", "wire_up"),
                    "127.0.0.1",
                    str(server.port),
                    str(options.ranks),
                    "6",
                    way,
                ]
                taken.append(
                    json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300).stdout)
                )
        results[way] = {
            "median_s": statistics.median(t["seconds"] for t in taken),
            "requests": statistics.median(t["requests"] for t in taken),
            "connections": statistics.median(t["connections"] for t in taken),
            "runs": taken,
        }
    print(f"\n{options.ranks} processes meet in 6 scopes (median of {options.rounds})\n")
    print("| | time | requests | connections |\n|---|---|---|---|")
    for way, name in (("batch", "Hora's way"), ("classic", "Horovod's way, same server")):
        row = results[way]
        print(f"| {name} | {1000 * row['median_s']:.1f} ms | {row['requests']:,.0f} | {row['connections']:,.0f} |")
    expected = 2 * 6 * options.ranks
    results["linear"] = results["batch"]["requests"] == expected
    print(f"\nbar: 2 requests per process and scope ({expected:,}): {'ok' if results['linear'] else 'MISSED'}")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="serve, wire-up; both when none is named")
    parser.add_argument("--build", required=True)
    parser.add_argument("--json", metavar="FILE")

    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser.add_argument("--connections", type=numbers, default=[1, 64, 1024])
    parser.add_argument("--nginx-workers", type=lambda text: text.split(","), default=["1", "auto"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=64)
    options = parser.parse_args()
    parts = {"serve": serve, "wire-up": wire_up}
    chosen = options.parts or list(parts)
    if unknown := [part for part in chosen if part not in parts]:
        parser.error(f"unknown part {unknown[0]}")
    if "serve" in chosen and not shutil.which("wrk"):
        sys.exit("wrk is missing: scripts/setup --benchmarks")
    report = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()},
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    print(f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    for part in chosen:
        report[part] = parts[part](options)
    if options.json:
        os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)
        print(f"\nevery sample: {options.json}")


if __name__ == "__main__":
    main()
