# SPDX-License-Identifier: Apache-2.0
"""Values that ranks report to the callbacks of run(), while it runs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_queue: Any = None


def configure(queue: Any) -> None:
    """Where log() puts what it is given. run() calls it on every rank."""
    global _queue
    _queue = queue


def log(info_dict: Any) -> None:
    """Gives a value to the callbacks; on other ranks than 0, and without callbacks, it does nothing."""
    from hora import basics

    if _queue is not None and basics.is_initialized() and basics.rank() == 0:
        _queue.put(info_dict)
