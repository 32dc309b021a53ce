# SPDX-License-Identifier: Apache-2.0
"""How ranks meet for jax.distributed.initialize() and TF_CONFIG, without JAX and TensorFlow."""

import json
import re

import pytest

from support import job

MEET = """
import os
from hora import clusters
os.environ.update(CHANGES)
for key in "ab":
    print("at", clusters._coordinator(key, 30, None))
"""


def run(np, code, tmp_path, *options, **changes):
    script = tmp_path / "script.py"
    script.write_text(code.replace("CHANGES", repr(changes)))
    return job.run_python(np, script, options=options)


@pytest.mark.parametrize("options", [(), ("--rendezvous-tls",)])
def test_all_ranks_get_one_address_for_each_meeting(tmp_path, options):
    finished = run(3, MEET, tmp_path, *options)
    assert finished.code == 0, str(finished)
    found = [re.findall(rf"\[{rank}\]<stdout>:at (127\.0\.0\.1:\d+)", finished.out) for rank in range(3)]
    assert len(found[0]) == 2 and found[0] == found[1] == found[2], str(finished)


def test_no_other_server_is_believed(tmp_path):
    finished = run(1, MEET, tmp_path, "--rendezvous-tls", HORA_RENDEZVOUS_TLS="0" * 64)
    assert finished.code == 1
    assert "does not answer: " in finished.err and "another certificate than HORA_RENDEZVOUS_TLS says" in finished.err


def test_a_token_is_needed(tmp_path):
    finished = run(1, MEET, tmp_path, HORA_RENDEZVOUS_TOKEN="f" * 32)
    assert finished.code == 1
    assert re.search(r"the rendezvous of the job at 127\.0\.0\.1:\d+ answers 401 to PUT /hora_clusters/a", finished.err)


def test_programs_without_jax_load_nothing_for_it(tmp_path):
    code = """
import sys
loaded = set(sys.modules)
assert not [name for name in loaded if "hora" in name or name.startswith(("http", "ssl"))], loaded
assert [each.__name__ for each in sys.meta_path[:1]] == ["_BeforeFrameworks"]
try:
    import jax
except ImportError:
    pass
assert "hora" not in sys.modules
print("fine")
"""
    finished = run(1, code, tmp_path)
    assert finished.code == 0 and "fine" in finished.out, str(finished)


LOOK_FOR_TENSORFLOW = """
import importlib.util, os, subprocess, sys
importlib.util.find_spec("tensorflow")
again = dict(os.environ)
del again["TF_CONFIG"]
code = "import importlib.util, os; importlib.util.find_spec('tensorflow'); print('later', os.environ['TF_CONFIG'])"
print("config", os.environ["TF_CONFIG"], flush=True)
subprocess.run([sys.executable, "-c", code], env=again, check=True)
"""


@pytest.mark.parametrize(
    ("kind", "np", "cluster", "tasks"),
    [
        ("worker", 3, {"worker": 3}, [("worker", 0), ("worker", 1), ("worker", 2)]),
        ("chief", 3, {"chief": 1, "worker": 2}, [("chief", 0), ("worker", 0), ("worker", 1)]),
        ("chief", 1, {"chief": 1}, [("chief", 0)]),
    ],
)
def test_tf_config(tmp_path, kind, np, cluster, tasks):
    """The same cluster on all ranks, a port for each, and the same for the second program of a rank."""
    finished = run(np, LOOK_FOR_TENSORFLOW, tmp_path, "--tf-config", kind)
    assert finished.code == 0, str(finished)
    found = {}
    for rank, when, text in re.findall(r"\[(\d+)\]<stdout>:(config|later) (.*)", finished.out):
        found.setdefault(int(rank), {})[when] = json.loads(text)
    assert [found[rank]["config"] for rank in range(np)] == [found[rank]["later"] for rank in range(np)]
    clusters = [found[rank]["config"]["cluster"] for rank in range(np)]
    assert all(each == clusters[0] for each in clusters)
    assert {job: len(places) for job, places in clusters[0].items()} == cluster
    places = [place for job in clusters[0].values() for place in job]
    assert len(set(places)) == np and all(re.fullmatch(r"127\.0\.0\.1:\d+", place) for place in places)
    assert [tuple(found[rank]["config"]["task"].values()) for rank in range(np)] == tasks


def test_no_tf_config_unless_asked(tmp_path):
    code = "import importlib.util, os; importlib.util.find_spec('tensorflow'); print(os.environ.get('TF_CONFIG'))"
    finished = run(1, code, tmp_path)
    assert finished.code == 0 and "None" in finished.out, str(finished)
