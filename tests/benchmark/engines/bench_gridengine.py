#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs in an allocation of Grid Engine: horarun next to qrsh, in one run.  Called by ./run --engine gridengine.

horarun      /bin/true, four ranks on each host, after a first job that left the runtime there
qrsh         `qrsh -inherit HOST /bin/true` for each host, all at the same time
in, out      32 MiB to the standard input of one rank, 20 MB from its standard output; not with qrsh alone, which
             hangs when much comes to its standard input at once, and loses the end of a long output
clean        from `kill -9` of horarun to the end of the last process of the job
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

import bench_engines

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines"))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "integration"))
import gridengine

import conftest
import jobs

HOSTS = 4
# All slots: qrsh is refused while earlier tasks have theirs, and a host forgets tasks that have ended a moment later.
RANKS = HOSTS * gridengine.SLOTS


def side_by_side(commands, environment):
    """Seconds until all of them have ended well."""
    began = time.perf_counter()
    running = [subprocess.Popen(each, env=environment, stdin=subprocess.DEVNULL) for each in commands]
    codes = [each.wait(bench_engines.LIMIT_S) for each in running]
    if any(codes):
        sys.exit(f"{commands}: {codes}")
    return time.perf_counter() - began


def clean_up_time(build, folder, environment, ranks):
    """From kill -9 of horarun until nothing of the job runs anywhere."""
    job = jobs.Horarun(build, folder).start("sh", "-c", "echo up; exec sleep 1000", env=environment)
    job.read_until("up", ranks)
    began = time.perf_counter()
    job.process.kill()
    job.process.wait()
    jobs.wait_until(lambda: not (job.survivors() or jobs.agents()), "every process of the job to end", 60)
    seconds = time.perf_counter() - began
    job.finish()
    return seconds


def main():
    options = bench_engines.parser_of(__doc__).parse_args()
    if why := gridengine.missing():
        sys.exit(why)
    factory = conftest.HostFactory()
    folder = tempfile.mkdtemp(prefix="hora-bench.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    cluster = gridengine.Cluster(factory(HOSTS), folder)
    try:
        held = gridengine.Allocation(cluster, "fill", RANKS)
        ours = [os.path.join(options.build, "bin", "horarun"), "/bin/true"]
        peers = [["qrsh", "-inherit", name, "/bin/true"] for name in held.slots()]
        contestants = {
            "horarun": lambda: bench_engines.timed(ours, held.environment),
            "qrsh": lambda: side_by_side(peers, held.environment),
            **bench_engines.own_streams(options.build, held.environment),
        }
        results = bench_engines.compare(contestants, options.rounds, lambda name: None)
        held.close()
        # In allocations of their own, since hosts count the killed tasks for a while.
        results["clean"] = []
        for _ in range(options.rounds):
            held = gridengine.Allocation(cluster, "fill", RANKS)
            results["clean"].append(clean_up_time(options.build, folder, held.environment, RANKS))
            held.close()
    finally:
        cluster.close()
        factory.down()
        shutil.rmtree(folder, ignore_errors=True)
    bench_engines.show_medians(f"Grid Engine, {HOSTS} hosts", results, options)
    bench_engines.write(options, "engines-gridengine.json", results)


if __name__ == "__main__":
    main()
