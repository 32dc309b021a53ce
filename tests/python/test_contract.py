# SPDX-License-Identifier: Apache-2.0
"""Every name of the public interface exists with its arguments, and a check or a test calls it.

What is listed in support/contract.py is looked up in the modules, with an interpreter that has the
framework; and in the sources of the checks, where a function that is never mentioned is an error:
no test would check its numbers.
"""

import ast
import functools
import json
import pathlib
import re
import subprocess
import sys

import pytest

from support import contract, job
from support.frameworks import VARIABLES, needed_python

HERE = pathlib.Path(__file__).parent

PROBE = """
import importlib, inspect, json, sys

def described(module, path):
    parent, value = None, module
    for part in path.split("."):
        parent, value = value, getattr(value, part)
    if not callable(value):
        return []
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return []
    if inspect.isclass(parent) and inspect.isfunction(value) and not isinstance(
            inspect.getattr_static(parent, path.rsplit(".", 1)[-1]), staticmethod):
        parameters = parameters[1:]  # self
    return [[p.name, "=" + repr(p.default) if p.default is not p.empty else ""] for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

module = importlib.import_module(sys.argv[1])
found = {}
for path in sys.argv[2:]:
    try:
        found[path] = described(module, path)
    except AttributeError:
        found[path] = None
print("FOUND " + json.dumps(found))
"""


def entries(text):
    """{name: [(argument, default as text or "")] or None where it is not a function}"""
    found = {}
    for name, arguments in re.findall(r"([\w.]+)(\((?:[^()]|\(\))*\))?", text):
        if not arguments:
            found[name] = None
            continue
        (function,) = ast.parse(f"def f{arguments}: pass").body
        given = function.args.args
        defaults = [None] * (len(given) - len(function.args.defaults)) + function.args.defaults
        found[name] = [
            (argument.arg, "" if default is None else "=" + ast.unparse(default))
            for argument, default in zip(given, defaults)
        ]
    return found


def differences(python, module, names):
    done = subprocess.run(
        [python, "-c", PROBE, module, *names],
        capture_output=True,
        text=True,
        timeout=180,
        stdin=subprocess.DEVNULL,
        env=job.environment(**VARIABLES),
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND ")), None)
    assert line is not None, done.stderr
    found = json.loads(line[6:])
    for name, wanted in names.items():
        ours = found[name]
        if ours is None:
            yield f"{module}.{name} is missing"
            continue
        for index, (argument, default) in enumerate(wanted or ()):
            if index >= len(ours) or ours[index][0] != argument:
                yield f"{module}.{name}: argument {index + 1} is {ours[index : index + 1]}, not {argument}"
            elif default not in ("", "=...") and ours[index][1] != default:
                yield f"{module}.{name}: {argument}{ours[index][1]}, not {argument}{default}"


@pytest.mark.parametrize("module", contract.FRAMEWORKS)
def test_names_and_arguments(module):
    framework, text = contract.FRAMEWORKS[module]
    assert not list(differences(needed_python(framework), module, entries(text)))


@pytest.mark.parametrize("module", contract.PLAIN)
def test_names_and_arguments_without_a_framework(module):
    assert not list(differences(sys.executable, module, entries(contract.PLAIN[module])))


@functools.lru_cache(maxsize=None)
def mentioned():
    """Every "module.name" that the checks and tests mention, and every ".name" of an attribute."""
    found = set()
    for file in [*HERE.glob("checks/*.py"), *HERE.glob("test_*.py")]:
        tree = ast.parse(file.read_text())
        found |= mentioned_in(tree)
        for each in tree.body:
            text = each.value.value if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) else None
            if isinstance(text, str) and text.startswith("\nimport "):  # a program that a test runs
                found |= mentioned_in(ast.parse(text))
    return found


def mentioned_in(tree):
    found = set()
    alias = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            alias.update(
                (each.asname or each.name.split(".")[0], each.name if each.asname else each.name.split(".")[0])
                for each in node.names
            )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                alias[each.asname or each.name] = f"{node.module}.{each.name}"
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            path = dotted(node)
            if path is not None and path.split(".")[0] in alias:
                first, _, rest = path.partition(".")
                found.add(alias[first] + ("." + rest if rest else ""))
        if isinstance(node, ast.Attribute):
            found.add("." + node.attr)
    return found


def dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def is_mentioned(modules, name):
    parts = name.split(".")
    if len(parts) > 1 and parts[-2][:1].isupper():  # a method: of what, the source does not say
        return "." + parts[-1] in mentioned()
    return any(f"{module}.{name}" in mentioned() for module in modules)


# What a command calls that a test runs: test_data_service.py the worker of the data service.
CALLED_BY_COMMANDS = {"horovod.tensorflow.data.compute_service.compute_worker_fn"}


def test_every_function_is_called_by_a_check():
    untested = []
    everywhere = [*contract.FRAMEWORKS, "hora", "hora.numpy", "hora.jax"]
    for module, (_, text) in contract.FRAMEWORKS.items():
        own = [name for name in entries(text) if name not in entries(contract.COMMON)]
        untested += [f"{module}.{name}" for name in own if not is_mentioned([module], name)]
    untested += [name for name in entries(contract.COMMON) if not is_mentioned(everywhere, name)]
    for module, text in contract.PLAIN.items():
        untested += [
            f"{module}.{name}"
            for name in entries(text)
            if not is_mentioned([module, *everywhere, "hora.elastic", "hora.exceptions"], name)
        ]
    untested = [name for name in untested if name not in CALLED_BY_COMMANDS]
    assert not untested, "no check or test mentions " + ", ".join(untested)
