# SPDX-License-Identifier: Apache-2.0
"""Several operations that are started together and waited for together, whatever happens."""

from __future__ import annotations

import time

from hora import operations
from hora.operations import new_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from hora.operations import Pending


class Batch:
    """The handles of operations that belong together. start() once, finish() once; a batch that
    is dropped leaves its operations to end by themselves, with their memory."""

    def __init__(self) -> None:
        self._handles: list[int] = []

    def start(self, begin: Callable[..., Iterable[Pending]], *arguments: Any) -> None:
        """begin(*arguments) yields one Pending after the other. When it fails half-way, what was
        started is let go."""
        try:
            for pending in begin(*arguments):
                self._handles.append(new_handle(pending))
        except BaseException:
            self.drop()
            raise

    def finish(self) -> list[Any]:
        """The results, flattened, in order. Waits for all operations even if one fails, so that none is left
        in flight, and raises the first failure."""
        results: list[Any] = []
        failure = None
        handles, self._handles = self._handles, []
        for position, handle in enumerate(handles):
            try:
                result = operations.synchronize(handle)
            except Exception as error:
                failure = failure or error
                continue
            except BaseException:  # a signal: the rest is still in flight
                self._handles = handles[position:]
                self.drop()
                raise
            if isinstance(result, (list, tuple)):
                results.extend(result)
            else:
                results.append(result)
        if failure is not None:
            raise failure
        return results

    def done(self) -> bool:
        """Whether all operations are done, so that finish() does not wait."""
        return all(operations.poll(handle) for handle in self._handles)

    def wait(self, seconds: float) -> bool:
        """Waits at most this long; returns whether all operations are done."""
        deadline = time.monotonic() + seconds
        return all(operations.wait_for(handle, max(0.0, deadline - time.monotonic())) for handle in self._handles)

    def drop(self) -> None:
        """Gives up the results."""
        for handle in self._handles:
            operations.forget(handle)
        self._handles = []


def finish_all(batches: Iterable[Batch]) -> list[Any]:
    """The results of several batches, flattened; all are waited for before a failure is raised."""
    results, failure = [], None
    for batch in batches:
        try:
            results += batch.finish()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def run(begin: Callable[..., Iterable[Pending]], *arguments: Any) -> list[Any]:
    """Starts and finishes a batch: the results, flattened."""
    batch = Batch()
    batch.start(begin, *arguments)
    return batch.finish()
