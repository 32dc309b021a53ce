# SPDX-License-Identifier: Apache-2.0
"""Small questions that scripts and integrations ask."""

import hora.basics as _basics
from hora.basics import check_num_rank_power_of_2  # noqa: F401
from hora.grouping import split_list  # noqa: F401


def gpu_available(ext_base_name="torch", verbose=False):
    """Whether the framework sees a GPU. Only a framework that is imported already is asked."""
    import sys

    framework = sys.modules.get(ext_base_name)
    if ext_base_name == "torch" and framework is not None:
        return framework.cuda.is_available()
    if ext_base_name == "tensorflow" and framework is not None:
        return bool(framework.config.list_physical_devices("GPU"))
    if ext_base_name == "mxnet" and framework is not None:
        return framework.context.num_gpus() > 0
    return False


def mpi_built(verbose=False):
    return _basics.mpi_built()


def gloo_built(verbose=False):
    return _basics.gloo_built()


def nccl_built(verbose=False):
    return bool(_basics.nccl_built())


def cuda_built(verbose=False):
    return _basics.cuda_built()


def rocm_built(verbose=False):
    return False


def ddl_built(verbose=False):
    return False


def ccl_built(verbose=False):
    return False


def extension_available(ext_base_name, verbose=False):
    """Whether a framework can be used: nothing is compiled for it, so whether it is installed."""
    import importlib.util

    return importlib.util.find_spec(ext_base_name) is not None


def check_extension(ext_name, ext_env_var=None, pkg_path=None, *args):
    """Horovod checked its compiled extension here; there is none, so nothing can be missing."""
