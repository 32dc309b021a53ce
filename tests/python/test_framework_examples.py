# SPDX-License-Identifier: Apache-2.0
"""The examples for TensorFlow, Keras and JAX run and learn."""

import pytest

from support import job
from support.expect import number_in
from support.frameworks import VARIABLES, has_module, needed_python

EXAMPLES = job.ROOT / "docs" / "examples"


def output_of(framework, script, np=2, **variables):
    finished = job.run_python(
        np, EXAMPLES / script, python=needed_python(framework), timeout=300, **{**VARIABLES, **variables}
    )
    assert finished.code == 0 and not finished.timed_out, str(finished)
    return finished.out


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_digits(backend):
    if not has_module(needed_python(backend), "keras"):
        pytest.skip(f"Keras is not installed with {backend}; scripts/ci.d/test-frameworks does that")
    out = output_of(backend, "keras_digits.py", KERAS_BACKEND=backend)
    assert number_in(r"2 ranks: ([\d.]+) % right", out) > 85, out


def test_tensorflow_tape():
    out = output_of("tensorflow", "tensorflow_tape.py")
    assert abs(number_in(r"bias is ([\d.]+)", out) - 3) < 0.01, out


def test_jax_regression():
    out = output_of("jax", "jax_regression.py")
    assert abs(number_in(r"bias is ([\d.]+)", out) - 3) < 0.01, out
