# SPDX-License-Identifier: Apache-2.0
"""A time limit for several steps."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time limit passed."""


class Timeout:
    """Begins when it is made. The message may contain {activity}."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._message = message
        self._end = time.monotonic() + timeout

    def remaining(self) -> float:
        """Seconds that are left; 0 at least."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException once the time is over."""
        if self.timed_out():
            raise TimeoutException(self._message.format(activity=activity, timeout=self._timeout))
