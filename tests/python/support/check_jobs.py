# SPDX-License-Identifier: Apache-2.0
"""Turns files of check_* functions into pytest tests: one job per number of ranks runs all of
them (starting a framework on every rank costs more than most checks), one test per check says how it
went on every rank."""

import ast
import json
import os
import pathlib

import pytest

from support import job

CHECKS = pathlib.Path(__file__).resolve().parents[1] / "checks"
RUNNER = pathlib.Path(__file__).with_name("run_checks.py")
_jobs = {}


def names_in(*files):
    """The checks of the files, without importing them (they may need a framework)."""
    return [
        f"{pathlib.Path(file).stem}.{node.name}"
        for file in files
        for node in ast.parse((CHECKS / file).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    ]


class CheckJob:
    """One finished job: what each rank wrote."""

    def __init__(self, files, np, python, timeout, variables):
        folder = job.scratch_folder()
        try:
            self.finished = job.run_python(
                np, RUNNER, folder, *(CHECKS / file for file in files), timeout=timeout, python=python, **variables
            )
            self.read(folder, np)
        finally:
            job.remove(folder)

    def read(self, folder, np):
        """What the ranks wrote into the folder."""
        self.ranks = []
        for rank in range(np):
            path = folder / f"rank{rank}.jsonl"
            lines = path.read_text().splitlines() if path.exists() else []
            self.ranks.append({entry["check"]: entry for entry in map(json.loads, lines)})

    def verify(self, check):
        entries = [rank.get(check) for rank in self.ranks]
        failed = [
            f"rank {rank}:\n{entry['text']}"
            for rank, entry in enumerate(entries)
            if entry is not None and entry["state"] == "failed"
        ]
        if failed:
            pytest.fail("\n".join(failed), pytrace=False)
        for rank, entry in enumerate(entries):
            if entry is None:
                pytest.fail(f"rank {rank} never came to {check}: {self.finished}", pytrace=False)
            if entry["state"] == "started":
                pytest.fail(f"rank {rank} did not end {check}: {self.finished}", pytrace=False)
        for entry in entries:
            if entry["state"] == "skipped":
                pytest.skip(entry["text"])


def rank_python():
    """The Python that runs the ranks: HORA_TEST_PYTHON (another environment, with another release
    of the framework), or this one."""
    return os.environ.get("HORA_TEST_PYTHON")


def finished_job(files, np, python=None, timeout=240, **variables):
    """The job of files of checks on np ranks; runs once per pytest session."""
    python = python or rank_python()
    key = (files, np, python, tuple(sorted(variables.items())))
    if key not in _jobs:
        _jobs[key] = CheckJob(files, np, python, timeout, variables)
    return _jobs[key]


def checks_as_tests(*files, ranks=(1, 2, 4), python=None, timeout=240, **variables):
    """A parametrised test function over all checks of the files."""

    @pytest.mark.parametrize("check", names_in(*files))
    @pytest.mark.parametrize("np", ranks)
    def test(np, check):
        finished_job(files, np, python, timeout, **variables).verify(check)

    @pytest.mark.parametrize("np", ranks)
    def test_job_ends_well(np):
        finished = finished_job(files, np, python, timeout, **variables).finished
        assert finished.code == 0 and not finished.timed_out, str(finished)

    return test, test_job_ends_well
