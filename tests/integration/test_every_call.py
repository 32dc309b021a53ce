# SPDX-License-Identifier: Apache-2.0
"""A sample of the runs of tests/faults/every_call.py; `scripts/ci every-call` runs more of them."""

import os
import platform
import subprocess

import pytest

CAMPAIGN = os.path.join(os.path.dirname(__file__), "..", "faults", "every_call.py")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the tracer knows the registers of x86-64 only")
def test_some_system_calls_fail(build):
    done = subprocess.run(
        ["/usr/bin/python3", CAMPAIGN, "12", "7"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "HORA_BUILD": build, "HORA_CALLS": "system", "HORA_JOBS": "echo"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the tracer knows the registers of x86-64 only")
@pytest.mark.parametrize("order", ["at once", "after the hello"])
def test_a_stream_that_cannot_be_read_ends_the_agent(build, tmp_path, order):
    """An agent of this machine reads its order before its loop runs, unless files are to be sent first."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("text")
    sends = ["--ship", str(tmp_path / "data")] if order == "after the hello" else []
    tracer = [f"{build}/bin/fault_tracer", "agent", "socket-read", "EIO", "1", str(tmp_path / "log"), "--"]
    done = subprocess.run(
        [*tracer, f"{build}/bin/horarun", "-np", "2", *sends, "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # Without a hello, no agent was there; after it, the host is lost. A build with NCCL asks for the hello first.
    lost = "[E_AGENT]" in done.stderr or "[E_HOST_LOST]" in done.stderr
    assert done.returncode == 125 and "host localhost: " in done.stderr and lost, done
