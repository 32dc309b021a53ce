# SPDX-License-Identifier: Apache-2.0
"""mpi4py of ranks that horarun --pmix has started."""

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
total = numpy.empty(4)
world.Allreduce(numpy.full(4, world.rank + 1.0), total)
names = world.gather(world.rank, root=0)
print(f"rank {world.rank} of {world.size} sums {total.tolist()} {names}", flush=True)
