# SPDX-License-Identifier: Apache-2.0
import functools

import pytest
import torch

from support import check_jobs

FILE = "torch_compile.py"


@functools.lru_cache(maxsize=None)
def checked(np):
    if not hasattr(torch.library, "custom_op"):
        pytest.skip(f"PyTorch {torch.__version__} has no torch.library.custom_op")
    return check_jobs.finished_job((FILE,), np, timeout=580, HORA_TEST_DUMP_AFTER="570")


@pytest.mark.parametrize("check", check_jobs.names_in(FILE))
@pytest.mark.parametrize("np", [1, 2, 3])
def test(np, check):
    checked(np).verify(check)
