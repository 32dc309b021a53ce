# SPDX-License-Identifier: Apache-2.0
"""Functions on threads, by the names that integrations import."""

from __future__ import annotations

import queue
import threading
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Runs target(*args) on a thread that is started; silent swallows what it raises."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {args!r}")

    def quietly(*arguments):
        try:
            target(*arguments)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=quietly, args=args, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls func(*args) on a thread once the event is set, unless stop is set first."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {args!r}")

    def wait():
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Calls fn(*args) for each of args_list, on at most max_concurrent_executions threads. Returns {index: result},
    without the calls that raised (their tracebacks are printed); None at once if it is not to wait."""
    work: queue.Queue[Any] = queue.Queue()
    for item in enumerate(args_list):
        work.put(item)
    results: dict[int, Any] = {}

    def serve():
        while True:
            try:
                index, args = work.get_nowait()
            except queue.Empty:
                return
            try:
                results[index] = fn(*args)
            except Exception:
                traceback.print_exc()

    threads = [in_thread(serve) for _ in range(min(max_concurrent_executions, len(args_list)))]
    if not block_until_all_done:
        return None
    for thread in threads:
        thread.join()
    return results
