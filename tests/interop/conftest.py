# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the integration tests, and the environment that has the real Horovod."""

import importlib.util
import os

import pytest

_path = os.path.join(os.path.dirname(__file__), "..", "integration", "conftest.py")
_spec = importlib.util.spec_from_file_location("integration_conftest", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
build, horarun, shared, hosts, _host_factory = (
    _module.build,
    _module.horarun,
    _module.shared,
    _module.hosts,
    _module._host_factory,
)


@pytest.fixture(scope="session")
def python():
    venv = os.environ.get("HORA_INTEROP_VENV", "/var/tmp/hora-interop")
    program = os.path.join(venv, "bin", "python")
    if not os.access(program, os.X_OK):
        pytest.skip(f"no {program}: run tests/interop/run")
    return program
