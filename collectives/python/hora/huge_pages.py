# SPDX-License-Identifier: Apache-2.0
"""New memory in huge pages: the kernel makes each page when it is first written to, and for a large
result that takes longer than the reduction. NumPy asks for huge pages itself."""

from __future__ import annotations

import ctypes
import os

# From here on it is worth a system call.
LEAST_BYTES = 4 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MADV_HUGEPAGE = 14
_madvise = None


def advise(address: int, size: int) -> None:
    """Asks for huge pages in memory that has not been written yet. Advice only: the kernel may ignore it."""
    global _madvise
    if _madvise is None:
        _madvise = ctypes.CDLL(None).madvise
        _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    begin = -(-address // _PAGE) * _PAGE
    length = (address + size - begin) // _PAGE * _PAGE
    if length > 0:
        _madvise(begin, length, _MADV_HUGEPAGE)
