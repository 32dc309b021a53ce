# SPDX-License-Identifier: Apache-2.0
"""Where estimators train: a backend runs a function on ranks."""

from __future__ import annotations

from hora import spark_job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class Backend:
    """What an estimator needs of a backend; derive from it to train on ranks of another kind."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list[Any]:
        """Calls fn(*args, **kwargs) on every rank, with the variables of env; returns the results by rank. Blocks."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """The number of ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Ranks in tasks of Spark, by horovod.spark.run().

    Args:
        num_proc: the number of ranks. Default: Spark's default parallelism
        env: variables for the ranks
        options: other arguments of horovod.spark.run(), such as start_timeout, nics or stdout
    """

    def __init__(self, num_proc: int | None = None, env: dict[str, str] | None = None, **options: Any) -> None:
        self._num_proc, self._env, self._options = num_proc, env or {}, options

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> list[Any]:
        """horovod.spark.run(fn, args, kwargs); the variables of env come on top of those of the backend. Blocks, and
        raises what horovod.spark.run() raises."""
        env = {**self._env, **(env or {})}
        return spark_job.run(fn, args, kwargs, self.num_processes(), env=env, **self._options)

    def num_processes(self) -> int:
        """The number of ranks. RuntimeError without a SparkContext."""
        if self._num_proc is not None:
            return self._num_proc
        return spark_job.need_context("SparkBackend").defaultParallelism
