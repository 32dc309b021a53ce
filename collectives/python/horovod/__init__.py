# SPDX-License-Identifier: Apache-2.0
"""The names that scripts written for Horovod import, implemented by Hora.

`import horovod.torch as hvd` (or horovod.tensorflow, horovod.keras, horovod.mxnet) gives the
programming model and the functions of Horovod's public interface on Hora's runtime. Nothing here is compiled,
and only the framework that the script uses is imported.
"""

import hora  # says so where Python is too old for the modules below
from horovod.runner import run

# The release of Horovod's interface that these modules follow; hora.__version__ is our own.
__version__ = "0.28.1"
