#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs in a real Spark (local cluster, two executors) or Ray (two nodes).  Called by ./run.

  warm         four ranks that join, allreduce one number and return, after two such runs: the whole run()
  rank raises  from the exception on one of two ranks, while the other waits in an allreduce, to that at the driver
  rank killed  the same from SIGKILL; the rank reads the clock before it

Everything is on one machine, so ranks and driver read the same clock. In Ray a killed rank ends its actor, so that
each round has an executor of its own; the time to start it does not count.
"""

import argparse
import contextlib
import logging
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "tests" / "python"))
from support import engines, job

sys.path.insert(0, str(job.PACKAGES))


def place():
    import hora.numpy as hvd

    hvd.init()
    return float(hvd.allreduce([1.0], op=hvd.Sum)[0])


def fail(how, clock):
    import hora.numpy as hvd

    hvd.init()
    hvd.allreduce([1.0], name="all are there")
    if hvd.rank() == 1:
        pathlib.Path(clock).write_text(repr(time.time()))
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("bad luck")
    hvd.allreduce([1.0], name="never")


def reported_after(run, how):
    """Seconds from the failure of a rank to the exception here."""
    with tempfile.TemporaryDirectory() as folder:
        clock = pathlib.Path(folder) / "clock"
        try:
            run(fail, (how, str(clock)), 2)
        except Exception as error:
            reported = time.time()
            if how == "raises" and "bad luck" not in str(error):
                raise
            return reported - float(clock.read_text())
    sys.exit(f"a rank that {how} was not reported")


def took(run):
    begun = time.perf_counter()
    if run(place, (), 4) != [4.0] * 4:
        sys.exit("a run returned something else")
    return time.perf_counter() - begun


def measure_spark(rounds):
    import horovod.spark

    quiet = open(os.devnull, "w")

    def run(function, arguments, ranks):
        return horovod.spark.run(function, args=arguments, num_proc=ranks, stdout=quiet, stderr=quiet, verbose=0)

    with engines.spark_context(2, 2) as context:
        context.setLogLevel("OFF")
        for _ in range(2):
            took(run)
        yield from rows(rounds, lambda: took(run), lambda how: reported_after(run, how))


def measure_ray(rounds):
    from horovod.ray import RayExecutor

    @contextlib.contextmanager
    def started(ranks):
        executor = RayExecutor(RayExecutor.create_settings(), num_workers=ranks)
        executor.start()
        try:
            yield lambda function, arguments, _: executor.run(function, args=arguments)
        finally:
            executor.shutdown()

    def failure(how):
        with started(2) as run:
            run(place, (), 2)
            return reported_after(run, how)

    with engines.ray_cluster(2, 4):
        with started(4) as run:
            for _ in range(2):
                took(run)
            warm = [took(run) for _ in range(rounds)]
        yield from rows(rounds, iter(warm).__next__, failure)


def rows(rounds, warm, failure):
    """(what, times); the kinds take turns."""
    times = {"warm run": [], "rank raises": [], "rank killed": []}
    for _ in range(rounds):
        times["warm run"].append(warm())
        times["rank raises"].append(failure("raises"))
        times["rank killed"].append(failure("killed"))
    yield from times.items()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["spark", "ray"])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    measure = measure_spark if options.engine == "spark" else measure_ray
    found = list(measure(options.rounds))
    print(f"{options.engine}, {options.rounds} rounds, milliseconds: median (least to most)")
    for what, times in found:
        middle, least, most = (1000 * value for value in (statistics.median(times), min(times), max(times)))
        print(f"{what:12} {middle:7.0f} ({least:.0f} to {most:.0f})")


main()
