# SPDX-License-Identifier: Apache-2.0
"""Horovod's jobs inside of Ray have no counterpart here: importing this is an error that names
what does the same work."""

raise ImportError(
    """horovod.ray is not a part of Hora: jobs are started by horarun, not by Ray. Instead:
  - a function on many ranks: horovod.run(fn, num_proc=4, hosts="a:2,b:2")"""
)
