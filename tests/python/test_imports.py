# SPDX-License-Identifier: Apache-2.0
"""Imports: our packages load no more than they need, and work if nothing else is installed."""

import ast
import pathlib
import subprocess
import sys

import pytest

from support import job

FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "mxnet", "numpy", "cloudpickle")


def python(code, *options, path=None):
    env = job.environment()
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run([sys.executable, *options, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def imported_by(statement):
    return set(python(f"{statement}\nimport sys\nprint(*sys.modules)").split())


@pytest.mark.parametrize(
    "statement",
    [
        "import hora",
        "import horovod",
        "import hora.elastic",
        "import hora.objects",
        "import hora.launch",
        "import horovod.common.util",
        "import horovod.common.exceptions",
        "import horovod.common.process_sets",
        "import horovod.common.basics",
        "import horovod.common.elastic",
        "import horovod.data",
        "import horovod.runner",
        "import sparkdl",
        "import hora; hora.init(); hora.shutdown()",
    ],
)
def test_no_framework_comes_along(statement):
    found = imported_by(statement).intersection(FRAMEWORKS)
    assert not found, found


def test_numpy_face_brings_numpy_only():
    pytest.importorskip("numpy")
    assert imported_by("import hora.numpy").intersection(FRAMEWORKS) == {"numpy"}


def test_torch_face_brings_what_torch_brings():
    pytest.importorskip("torch")
    torch_alone = imported_by("import torch")
    ours = imported_by("import horovod.torch") - torch_alone
    foreign = {name for name in ours if name.split(".")[0] not in ("hora", "horovod")}
    assert not foreign.intersection(FRAMEWORKS), foreign
    # A handful of small modules of the standard library at most.
    assert len(foreign) < 15, sorted(foreign)


def test_library_is_found_next_to_the_package():
    """In the bundle the package needs no variable to find its library."""
    bundle = job.bundle_dir()
    if not bundle.exists():
        pytest.skip(f"{bundle} was not built")
    code = (
        "import os; os.environ.pop('HORA_LIBRARY', None)\n"
        "import hora; from hora import _native; hora.init(); print(_native.library().path)"
    )
    assert python(code, path=bundle / "python") == str(bundle / "lib" / "libhora.so")


def test_a_missing_library_is_a_clear_error():
    done = subprocess.run(
        [sys.executable, "-c", "import hora; hora.init()"],
        capture_output=True,
        text=True,
        env={**job.environment(), "HORA_LIBRARY": "/nowhere/libhora.so"},
        timeout=60,
    )
    assert done.returncode != 0
    assert "/nowhere/libhora.so" in done.stderr and "horarun" in done.stderr


def test_functions_travel_without_an_installed_cloudpickle():
    bundle = job.bundle_dir() / "python"
    if not (bundle / "hora" / "_bundled" / "cloudpickle").exists():
        pytest.skip("the bundle was made without cloudpickle")
    code = (
        "from hora import serialization\n"
        "data = serialization.dumps(lambda x: x + 1)\n"
        "import cloudpickle\n"
        "print(serialization.loads(data)(4), '_bundled' in cloudpickle.__file__)"
    )
    assert python(code, "-S", path=bundle) == "5 True"


def test_version():
    text = python(
        "import hora, horovod; from hora import _native\nprint(hora.__version__, _native.library().version().decode())"
    )
    assert len(set(text.split())) == 1


def our_modules():
    """Path by module name."""
    modules = {}
    for path in job.PACKAGES.rglob("*.py"):
        parts = path.relative_to(job.PACKAGES).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports_of(path: pathlib.Path, modules):
    """Every import of ours that can run, those inside functions included."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if not is_for_type_checkers(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in whole if node.module in modules)


def test_no_module_imports_itself_by_way_of_others():
    modules = our_modules()
    graph = {name: set(imports_of(path, modules)) - {name} for name, path in modules.items()}
    # Remove what imports nothing that is left; a circle remains.
    while free := [name for name, used in graph.items() if not used & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph, {name: used & graph.keys() for name, used in graph.items()}
