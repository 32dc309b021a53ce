# SPDX-License-Identifier: Apache-2.0
"""A base for data loaders, and a mix-in that loads ahead in a thread."""

from __future__ import annotations

import queue
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BaseDataLoader:
    """Iterates over batches. Subclasses give _iterate(), and may prepare each batch in
    _process_batch()."""

    def __len__(self):
        raise NotImplementedError

    def _iterate(self):
        raise NotImplementedError

    def _process_batch(self, batch):
        return batch

    def __iter__(self):
        for batch in self._iterate():
            yield self._process_batch(batch)


class _Failure:
    def __init__(self, error):
        self.error = error


_END = object()


class AsyncDataLoaderMixin:
    """class Loader(AsyncDataLoaderMixin, MyLoader): a thread prepares batches ahead, at most
    async_loader_queue_size of them, and ends with the iteration. 0 disables it."""

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._stop = None
        self._thread = None
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends the loading thread; iterating again starts another."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None

    def _load(self, batches, stop):
        def put(item):
            while not stop.is_set():
                try:
                    batches.put(item, timeout=0.05)
                    return True
                except queue.Full:
                    pass
            return False

        try:
            for batch in super().__iter__():
                if not put(batch):
                    return
            put(_END)
        except BaseException as error:
            put(_Failure(error))

    def __iter__(self):
        if not self.async_loader_queue_size:
            yield from super().__iter__()
            return
        self.close_async_loader()
        batches = queue.Queue(self.async_loader_queue_size)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._load, args=(batches, self._stop), name="hora-loader", daemon=True)
        self._thread.start()
        try:
            while True:
                item = batches.get()
                if item is _END:
                    return
                if isinstance(item, _Failure):
                    raise item.error
                yield item
        finally:
            self.close_async_loader()
