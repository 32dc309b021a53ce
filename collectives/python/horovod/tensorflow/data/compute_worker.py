# SPDX-License-Identifier: Apache-2.0
"""horarun -np 4 python -m horovod.tensorflow.data.compute_worker FILE: a data service of TensorFlow, one worker for
each rank, until a training ends it. It writes its address to FILE for the trainings."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

import hora.numpy as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn, own_name
from horovod.tensorflow.data.registry import Registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs dispatchers and workers of the data service until the trainings end it; see --help."""
    parser = argparse.ArgumentParser(prog="compute_worker", description="Runs TensorFlow's data service.")
    parser.add_argument("configfile", help="file to write, for the trainings; on a path that all their hosts see")
    parser.add_argument("--dispatchers", type=int, default=1, help="one, or as many as the training has ranks")
    parser.add_argument("--dispatcher-side", choices=["compute", "training"], default="compute")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that trainings wait for a dispatcher")
    options = parser.parse_args(arguments)
    hvd.init()
    if options.dispatchers < 1 or hvd.size() % options.dispatchers != 0:
        sys.exit(
            f"compute_worker: --dispatchers {options.dispatchers} does not divide the {hvd.size()} ranks of this job"
        )
    config = None
    with contextlib.ExitStack() as stack:
        if hvd.rank() == 0:
            registry = Registry(options.dispatchers)
            stack.callback(registry.close)
            config = TfDataServiceConfig(
                dispatchers=options.dispatchers,
                workers_per_dispatcher=hvd.size() // options.dispatchers,
                dispatcher_side=options.dispatcher_side,
                address=f"{own_name()}:{registry.port}",
                key=registry.key.hex(),
                timeout=options.timeout,
            )
            config.write(options.configfile)
            stack.callback(_remove, options.configfile, config)
        compute_worker_fn(hvd.broadcast_object(config, 0))
        hvd.barrier()  # the registry answers until all know of the end


def _remove(filename, config):
    """Unless another service has written it since."""
    with contextlib.suppress(OSError, ValueError):
        if TfDataServiceConfig.read(filename) == config:
            os.unlink(filename)


if __name__ == "__main__":
    main()
