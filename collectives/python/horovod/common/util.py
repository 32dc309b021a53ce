# SPDX-License-Identifier: Apache-2.0
"""Small questions that scripts and integrations ask."""

from __future__ import annotations

import hora.basics as _basics
from hora.basics import check_num_rank_power_of_2  # noqa: F401
from hora.grouping import split_list  # noqa: F401

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Whether the framework sees a GPU. Does not import a framework."""
    import sys

    framework = sys.modules.get(ext_base_name)
    if ext_base_name == "torch" and framework is not None:
        return framework.cuda.is_available()
    if ext_base_name == "tensorflow" and framework is not None:
        return bool(framework.config.list_physical_devices("GPU"))
    if ext_base_name == "mxnet" and framework is not None:
        return framework.context.num_gpus() > 0
    return False


def mpi_built(verbose: bool = False) -> bool:
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    return bool(_basics.nccl_built())


def cuda_built(verbose: bool = False) -> bool:
    return _basics.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    return False


def ddl_built(verbose: bool = False) -> bool:
    return False


def ccl_built(verbose: bool = False) -> bool:
    return False


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a framework can be used: nothing is compiled for it, so whether it is installed."""
    import importlib.util

    return importlib.util.find_spec(ext_base_name) is not None


def check_extension(ext_name: str, ext_env_var: str | None = None, pkg_path: str | None = None, *args: Any) -> None:
    """Horovod checked its compiled extension here; there is none, so nothing can be missing."""
