# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's data service, started by horarun: datasets are computed on other machines than the
ones that train. compute_worker is the command; docs/reference/python-tensorflow.md describes both."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time

import tensorflow as tf

import hora.numpy as hvd
from hora.basics import describe
from horovod.tensorflow.data.registry import RegistryClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_SIDES = ("compute", "training")


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """Where a data service is, and who may use it: the key is a secret."""

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    address: str
    key: str
    timeout: float = 60

    def __post_init__(self) -> None:
        if self.dispatchers < 1 or self.workers_per_dispatcher < 1:
            raise ValueError("a data service needs at least one dispatcher and one worker for each")
        if self.dispatcher_side not in _SIDES:
            raise ValueError(f"dispatcher_side={self.dispatcher_side!r}: expected one of {_SIDES}")

    def to_dict(self) -> dict[str, Any]:
        """The fields, as from_dict() takes them."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> TfDataServiceConfig:
        """A configuration from to_dict(); unknown keys are ignored."""
        known = {field.name for field in dataclasses.fields(TfDataServiceConfig)}
        return TfDataServiceConfig(**{name: value for name, value in values.items() if name in known})

    def write(self, filename: str | os.PathLike[str]) -> None:
        """For read() on other hosts; only this user may read the file."""
        # A process that waits for the file must never read half of it.
        partial = f"{os.fspath(filename)}.{os.getpid()}"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w") as file:
                json.dump(self.to_dict(), file)
            os.replace(partial, filename)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise

    @staticmethod
    def read(
        filename: str | os.PathLike[str], wait_for_file_creation: bool = False, timeout: float = 60
    ) -> TfDataServiceConfig:
        """Reads the file that write() makes. With wait_for_file_creation waits until it is there, at most `timeout`
        seconds; TimeoutError then."""
        deadline = time.monotonic() + timeout
        while wait_for_file_creation and not os.path.exists(filename):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no data service has written {os.fspath(filename)} within {timeout:g} s")
            time.sleep(0.1)
        with open(filename) as file:
            return TfDataServiceConfig.from_dict(json.load(file))

    def compute_client(self, verbose: int = 1) -> RegistryClient:
        """For shutdown(), which ends the service."""
        return RegistryClient(self.address, self.key, self.timeout)


def own_name() -> str:
    """A name or address by which other hosts reach this one."""
    address = describe().get("address", "") if hvd.is_initialized() else ""
    if address and not address.startswith("127."):
        return f"[{address}]" if ":" in address else address
    return os.environ.get("HOROVOD_HOSTNAME", "localhost")


@contextlib.contextmanager
def _dispatcher(config: TfDataServiceConfig, index: int) -> Iterator[str]:
    server = tf.data.experimental.service.DispatchServer()
    address = f"grpc://{own_name()}:{server.target.rsplit(':', 1)[1]}"
    config.compute_client().register_dispatcher(index, address)
    yield address
    del server  # which stops it


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of the dispatcher for this rank of a training, for tf.data.experimental.service.
    If dispatchers are on the side of the training, this one runs while the context is open."""
    index = rank if compute_config.dispatchers > 1 else 0
    if index >= compute_config.dispatchers:
        raise ValueError(
            f"rank {rank} has no dispatcher: the service has {compute_config.dispatchers}. It takes as many as the "
            "training has ranks, or one"
        )
    if compute_config.dispatcher_side == "training" and rank == index:
        with _dispatcher(compute_config, index) as address:
            yield address
        return
    yield compute_config.compute_client().wait_for_dispatcher(index)


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """What the dataset does so far, the service does. reuse_dataset: all ranks share its elements, by
    turns with round_robin; otherwise each rank gets all of them."""
    if compute_config.dispatcher_side == "training":
        raise RuntimeError("the dispatchers are on the side of the training: start them by tf_data_service()")
    if compute_config.dispatchers > 1 and (reuse_dataset or round_robin):
        raise ValueError("ranks share a dataset through one dispatcher; this service has several")
    if round_robin and (not reuse_dataset or size is None):
        raise ValueError("round_robin=True needs reuse_dataset=True and the number of ranks, size")
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode="distributed_epoch",
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if round_robin else None,
                num_consumers=size if round_robin else None,
            )
        )


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """One worker of the service: every rank of its job calls this, after init(). Blocks until the service is ended, by
    compute_client().shutdown()."""
    index, place = divmod(hvd.rank(), compute_config.workers_per_dispatcher)
    client = compute_config.compute_client()
    with contextlib.ExitStack() as stack:
        if compute_config.dispatcher_side == "compute" and place == 0:
            stack.enter_context(_dispatcher(compute_config, index))
        address = client.wait_for_dispatcher(index, end_with_service=True)
        if address:
            worker = tf.data.experimental.service.WorkerServer(
                tf.data.experimental.service.WorkerConfig(
                    dispatcher_address=address.split("://")[1], worker_address=f"{own_name()}:%port%"
                )
            )
            client.wait_for_shutdown()
            del worker


tf.data.Dataset.send_to_data_service = send_to_data_service
