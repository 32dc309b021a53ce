# SPDX-License-Identifier: Apache-2.0
"""Two ranks as a task of Spark starts them, whose Python runs the sitecustomize of its environment and not ours."""

import os
import pathlib
import subprocess
import sys
import tempfile

from hora import rendezvous, serialization


def numbers():
    import jax

    jax.distributed.initialize()
    return f"rank {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices"


with rendezvous.Rendezvous("127.0.0.1") as met, tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "sitecustomize.py").touch()
    path = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
    ranks = []
    for place in rendezvous.assign_ranks(["here", "here"]):
        given, outcome = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        given.write(serialization.dumps((numbers, (), {}), "numbers"))
        given.seek(0)
        files = [given.fileno(), outcome.fileno()]
        command = [sys.executable, "-m", "hora.rank_process", str(os.getpid()), *map(str, files)]
        variables = {**os.environ, **met.environment(place), "MASTER_ADDR": "127.0.0.1", "PYTHONPATH": path}
        ranks.append((subprocess.Popen(command, pass_fds=files, env=variables), given, outcome))
    for process, _, outcome in ranks:
        process.wait(200)
        outcome.seek(0)
        print(serialization.loads(outcome.read()[1:], "what a rank returned"))
