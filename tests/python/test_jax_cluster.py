# SPDX-License-Identifier: Apache-2.0
"""How ranks meet for jax.distributed.initialize(), without JAX; test_trainers.py has it with JAX."""

import re

import pytest

from support import job

MEET = """
import os
from hora import jax_cluster
os.environ.update(CHANGES)
for key in "ab":
    print("at", jax_cluster._coordinator(key, 30, None))
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
    assert re.search(r"the rendezvous of the job at 127\.0\.0\.1:\d+ answers 401 to PUT /hora_jax/a", finished.err)


def test_programs_without_jax_load_nothing_for_it(tmp_path):
    code = """
import sys
loaded = set(sys.modules)
assert not [name for name in loaded if "hora" in name or name.startswith(("http", "ssl"))], loaded
assert [each.__name__ for each in sys.meta_path[:1]] == ["_BeforeJax"]
try:
    import jax
except ImportError:
    pass
assert "hora" not in sys.modules
print("fine")
"""
    finished = run(1, code, tmp_path)
    assert finished.code == 0 and "fine" in finished.out, str(finished)
