# SPDX-License-Identifier: Apache-2.0
"""The page of known differences: each row has a reason, and names a test that exists."""

import re

import pytest

from support import job

PAGE = job.ROOT / "docs" / "reference" / "differences.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
    for line in PAGE.read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| Horovod |"))
]


def _source_and_beginning(name):
    """The file that a test is in, and how the test begins there. `torch_ops.check_join` and `test_run.py::test_failure`
    name a function, `plan_test.cpp::Hosts are filled` a test case."""
    if "::" in name:
        file, test = name.split("::", 1)
        path = next(path for path in (job.ROOT / "tests").rglob(file))
        return path, f'TEST_CASE("{test}"' if path.suffix == ".cpp" else f"def {test}("
    module, function = name.split(".")
    return job.ROOT / "tests" / "python" / "checks" / f"{module}.py", f"def {function}("


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_row_has_a_reason_and_a_test(row):
    assert len(row) == 4 and all(row), row
    names = re.findall(r"`([^`]+)`", row[3])
    assert names, f"no test is named: {row}"
    for name in names:
        path, beginning = _source_and_beginning(name)
        assert beginning in path.read_text(), f"{path.name} has no {beginning}"


def test_there_are_rows():
    assert len(ROWS) >= 5


def test_every_row_is_in_a_table():
    """A row behind a blank line would be shown as text."""
    blank_before = zip(["", *PAGE.read_text().splitlines()], PAGE.read_text().splitlines())
    loose = [line for before, line in blank_before if line.startswith("|") and not before.startswith("|")]
    assert all(line.startswith("| Horovod |") for line in loose), loose
