# SPDX-License-Identifier: Apache-2.0
"""See sparkdl.horovod.tensorflow.keras."""
