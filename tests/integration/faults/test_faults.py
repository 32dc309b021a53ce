# SPDX-License-Identifier: Apache-2.0
"""Every row of table.py: put into one host of eight (HORA_FAULT_HOSTS), named with its host and what to do."""

import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import inject
import table

REPOSITORY = os.path.join(os.path.dirname(__file__), "..", "..", "..")


def test_the_table_is_long_enough_and_the_page_is_made_from_it():
    assert len(table.ROWS) >= 40
    assert len({row.id for row in table.ROWS}) == len(table.ROWS)
    subprocess.run([os.path.join(REPOSITORY, "scripts/check"), "troubleshooting"], check=True, timeout=60)


@pytest.mark.parametrize("fault", table.ROWS, ids=lambda row: row.id)
def test_fault(horarun, hosts, tmp_path, fault):
    count = int(os.environ.get("HORA_FAULT_HOSTS", 8))
    injector = inject.Injector(hosts(count), tmp_path, count)
    try:
        for kind, *arguments in fault.inject:
            injector.put(kind, *arguments)
        done = injector.run(horarun, fault.run)
    finally:
        injector.take_back()
    assert done.code == fault.exit, f"exit {done.code}, expected {fault.exit}\n{done}"
    said = done.messages + done.text
    for words in [*fault.says, *fault.advises]:
        words = words.replace("4 slots", f"{count} slots")
        assert words in said, f"{words!r} was not said\n{done}"
