#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each bug of bugs.py can still be put: its text occurs once in its file, and its tests exist.

A unit test of every build, so that a change of the code takes its bugs along. It puts none: `scripts/ci mutation` does.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import bugs  # noqa: E402


def read(path):
    """What the file holds; nothing if there is none."""
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def unit_tests():
    """The names of all programs of unit tests."""
    found = set()
    for folder, _, names in os.walk(os.path.join(ROOT, "tests")):
        if "CMakeLists.txt" in names:
            found.update(re.findall(r"hora_add_unit_test\((\w+)", read(os.path.join(folder, "CMakeLists.txt"))))
    return found


def is_test(test, programs):
    if ".py" not in test:
        return test in programs
    path, _, function = test.partition("::")
    # pytest takes `FILE::NAME` for the function of this name only.
    return bool(re.search(rf"^def {function}\(" if function else r"^def test_", read(f"tests/{path}"), re.MULTILINE))


def problems():
    names, programs = set(), unit_tests()
    for name, path, old, new, tests in bugs.BUGS:
        if name in names:
            yield f"{name}: two bugs have this name"
        names.add(name)
        count = read(path).count(old)
        if count != 1:
            yield f"{name}: {path} holds its text {count} times instead of once: {old!r}"
        if old == new:
            yield f"{name}: changes nothing"
        if not tests.split():
            yield f"{name}: has no test"
        for test in tests.split():
            if not is_test(test, programs):
                yield f"{name}: there is no test {test}"


def main():
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print("check_bugs: rewrite these bugs in tests/mutation/bugs.py for the code as it is now", file=sys.stderr)
    print(f"check_bugs: {len(bugs.BUGS)} bugs, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
