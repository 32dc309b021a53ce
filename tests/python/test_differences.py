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


def _source_and_function(name):
    """`torch_ops.check_join` and `test_run.py::test_failure` both name a function of a file."""
    if "::" in name:
        file, function = name.split("::")
        return next(path for path in (job.ROOT / "tests").rglob(file)), function
    module, function = name.split(".")
    return job.ROOT / "tests" / "python" / "checks" / f"{module}.py", function


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_row_has_a_reason_and_a_test(row):
    assert len(row) == 4 and all(row), row
    names = re.findall(r"`([^`]+)`", row[3])
    assert names, f"no test is named: {row}"
    for name in names:
        path, function = _source_and_function(name)
        assert f"def {function}(" in path.read_text(), f"{path.name} has no {function}"


def test_there_are_rows():
    assert len(ROWS) >= 5
