# SPDX-License-Identifier: Apache-2.0
"""Horovod's jobs inside of Spark have no counterpart here: importing this is an error that names
what does the same work."""

raise ImportError(
    """horovod.spark is not a part of Hora: jobs are started by horarun, not by Spark. Instead:
  - a function on many ranks: horovod.run(fn, num_proc=4, hosts="a:2,b:2"), or
    HorovodRunner(np=4).run(main) of hora and sparkdl
  - the hosts of a cluster manager's allocation (Slurm, LSF, PBS, SGE, Kubernetes): horarun inside it
  - estimators: write the DataFrame to Parquet, and train on the files with horovod.torch or
    horovod.keras"""
)
