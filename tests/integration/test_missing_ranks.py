# SPDX-License-Identifier: Apache-2.0
"""Ranks that never call init(): all that call it, and the launcher, name them and their hosts."""

import pathlib
import re

import pytest

# They stay until all have the error, and do not follow the launcher, which ends the job when the first one fails.
PROGRAM = """\
import os, signal, sys, time
if int(os.environ["HOROVOD_RANK"]) in {missing}:
    time.sleep(600)
import hora
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hora.init()
"""


def run_without(horarun, folder, missing, *options, **variables):
    """What each rank that came said last, and the launcher at the end."""
    pathlib.Path(folder, "missing.py").write_text(PROGRAM.replace("{missing}", repr(missing)))
    variables = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "4", **variables}
    exports = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    done = horarun.run(*options, "--grace", "20s", *exports, "--wdir", folder, "python3", "missing.py").expect(1)
    said = re.findall(r"\[(\d+)\]<stderr>:\S*InitError: joining the job: (.*)", done.messages)
    report = [line for line in done.messages.splitlines() if not line.startswith("[")]
    return {int(rank): text for rank, text in said}, "\n".join(report)


def expected(ranks, where):
    noun = "ranks" if "," in ranks else "rank"
    return f"timed out waiting for {noun} {ranks} to start (HOROVOD_GLOO_TIMEOUT_SECONDS sets the limit): {where}"


@pytest.mark.parametrize("missing, where", [([2], "rank 2"), ([0, 3], "ranks 0, 3")])
def test_on_one_host(horarun, tmp_path, missing, where):
    said, report = run_without(horarun, tmp_path, missing, "-np", 4, HORA_BACKENDS="shm")
    text = expected(", ".join(map(str, missing)), f"{where} on localhost")
    assert said == {rank: text for rank in range(4) if rank not in missing}
    assert text in report, report


@pytest.mark.parametrize("star", ["256", "0"])
@pytest.mark.parametrize(
    "missing, where",
    [
        ([3], "rank 3 on node2"),
        ([2], "rank 2 on node2"),  # node2's leader, which rank 3 would go through
        ([0, 5], "rank 0 on node1, rank 5 on node3"),
    ],
)
def test_on_several_hosts(horarun, hosts, shared, star, missing, where):
    three = hosts(3)
    said, report = run_without(horarun, shared, missing, "-H", three.spec(2), HORA_STAR_RANKS=star)
    text = expected(", ".join(map(str, missing)), where)
    assert said == {rank: text for rank in range(6) if rank not in missing}
    assert text in report, report
