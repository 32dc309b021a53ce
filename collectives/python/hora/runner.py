# SPDX-License-Identifier: Apache-2.0
"""HorovodRunner, as notebooks know it: a function on every rank of a new job."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class HorovodRunner:
    """HorovodRunner(np=-4).run(main, lr=0.1): np=-n starts n ranks on this machine; np=n starts n
    ranks in tasks of Spark where a SparkContext is active, otherwise on the hosts of the allocation (or
    here, where there is none)."""

    def __init__(self, *, np: Any, driver_log_verbosity: str = "log_callback_only") -> None:
        if not isinstance(np, int) or isinstance(np, bool) or np == 0:
            raise ValueError(f"HorovodRunner(np={np}): expected a number of ranks, negative for ranks on this machine")
        if driver_log_verbosity not in ("all", "log_callback_only"):
            raise ValueError(f"driver_log_verbosity={driver_log_verbosity!r}: expected 'all' or 'log_callback_only'")
        self.num_processor = np
        self.driver_log_verbosity = driver_log_verbosity

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Calls main(**kwargs) on every rank of a new job; returns what rank 0 returned.

        Blocks until the job has ended. Raises RuntimeError with the traceback of the rank that failed.
        """
        from hora import spark_job
        from hora.launch import run

        if self.num_processor > 0 and spark_job.active_context() is not None:
            return spark_job.run(main, kwargs=kwargs, num_proc=self.num_processor)[0]
        count = abs(self.num_processor)
        hosts = f"localhost:{count}" if self.num_processor < 0 else None
        return run(main, kwargs=kwargs, np=count, hosts=hosts)[0]


def log_to_driver(message: object) -> None:
    """Writes a line to the output of the job."""
    sys.stdout.write(str(message) + "\n")
    sys.stdout.flush()
