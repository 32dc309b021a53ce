# SPDX-License-Identifier: Apache-2.0
"""Small questions that scripts and integrations ask."""

from __future__ import annotations

import contextlib
import functools
import os

import hora.basics as _basics
from hora.basics import check_num_rank_power_of_2  # noqa: F401
from hora.grouping import split_list  # noqa: F401

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MISSING = object()


@contextlib.contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Variables of this process's environment within a block; None takes one away."""
    before = {name: os.environ.get(name) for name in variables}
    _put_into_environment(variables)
    try:
        yield
    finally:
        _put_into_environment(before)


def _put_into_environment(variables):
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the function once for each list of arguments, and remembers what it returned."""
    known: dict[Any, Any] = {}

    @functools.wraps(function)
    def remembering(*args, **kwargs):
        key = (args, frozenset(kwargs.items()))
        value = known.get(key, _MISSING)
        if value is _MISSING:
            value = known[key] = function(*args, **kwargs)
        return value

    return remembering


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
    """See hora.mpi_built(); verbose is accepted."""
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """See hora.gloo_built(); verbose is accepted."""
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """Whether hora.nccl_built() is not 0; verbose is accepted."""
    return bool(_basics.nccl_built())


def cuda_built(verbose: bool = False) -> bool:
    """See hora.cuda_built(); verbose is accepted."""
    return _basics.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """False; verbose is accepted."""
    return False


def ddl_built(verbose: bool = False) -> bool:
    """False; verbose is accepted."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """False; verbose is accepted."""
    return False


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a framework can be used: nothing is compiled for it, so whether it is installed."""
    import importlib.util

    return importlib.util.find_spec(ext_base_name) is not None


def check_extension(ext_name: str, ext_env_var: str | None = None, pkg_path: str | None = None, *args: Any) -> None:
    """Horovod checked its compiled extension here; there is none, so nothing can be missing."""
