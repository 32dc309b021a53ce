# SPDX-License-Identifier: Apache-2.0
"""Makes the backend "hora" known to torch.distributed, when that is imported.

sitecustomize loads this file by its path, so that an import of PyTorch does not import all of hora: it imports nothing
of hora until a group is made.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of the group that is being made: whether it has one backend for all devices.
_alone = True


def register(c10d: Any = None) -> None:
    """Registers the backend with the module torch.distributed.distributed_c10d."""
    if c10d is None:
        import torch.distributed

        c10d = torch.distributed.distributed_c10d
    if hasattr(c10d.Backend, "HORA") and "HORA" in c10d.Backend._plugins:
        return
    try:
        c10d.Backend.register_backend("hora", _create, extended_api=True, devices=["cpu"])
    except TypeError:  # before PyTorch 2.0
        c10d.Backend.register_backend("hora", _refuse)
        return
    make = c10d._new_process_group_helper
    wanted = os.environ.get("HORA_TORCH_BACKEND") == "hora"
    if wanted:
        c10d.Backend.default_device_backend_map["cpu"] = "hora"

    def new_process_group(size, rank, ranks, backend, *args, **kwargs):
        global _alone
        if wanted:
            backend = c10d.Backend(str(backend).replace("gloo", "hora"))
        _alone = len(set(c10d.BackendConfig(backend).get_device_backend_map().values())) == 1
        return make(size, rank, ranks, backend, *args, **kwargs)

    c10d._new_process_group_helper = new_process_group


def _create(opts, _options):
    from hora import c10d

    return c10d.create(opts, _alone)


def _refuse(*_arguments):
    import torch

    raise RuntimeError(f'the backend "hora" needs PyTorch 2.1 or later; this is {torch.__version__}')
