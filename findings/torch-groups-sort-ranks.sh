#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch), torch.distributed; mpi4py 4.1.2 with MPICH 5.0.2 to compare
# behaviour: new_group([2, 0]) numbers its members by their ranks in the world: rank 0 is the first and rank 2 the second, as
#            after new_group([0, 2]). A group of MPI with the same list begins with rank 2.
# guess:     the list says the order, as of MPI_Group_incl; so all_gather puts what rank 2 gives first, and group_src=0 is rank 2
# seen:      2026-11-30, the lines that the script compares: ranks in the group, and what all_gather returns
# relies:    ProcessSet in collectives/python/hora/process_sets.py sorts, too; docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 numpy==2.4.6 mpi4py==4.1.2 mpich==5.0.2 || { echo "needs PyPI"; exit 77; }
cat >"$folder/with_torch.py" <<'PYTHON'
import sys

import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=3)
group = dist.new_group([2, 0])
if rank != 1:
    gathered = [None, None]
    dist.all_gather_object(gathered, rank, group=group)
    if rank == 2:
        print("torch: rank 2 is", dist.get_rank(group), gathered)
dist.destroy_process_group()
PYTHON
cat >"$folder/with_mpi.py" <<'PYTHON'
from mpi4py import MPI

group = MPI.COMM_WORLD.Create(MPI.COMM_WORLD.group.Incl([2, 0]))
if group != MPI.COMM_NULL:
    gathered = group.allgather(MPI.COMM_WORLD.rank)
    if MPI.COMM_WORLD.rank == 2:
        print("MPI: rank 2 is", group.rank, gathered)
PYTHON
run() { timeout 120 "$folder/bin/python" -W ignore "$folder/with_torch.py" "$1" "$folder/rendezvous" 2>>"$folder/log"; }
run 0 &
run 1 &
seen=$(run 2) || tail "$folder/log" >&2
wait
seen="$seen
$(timeout 60 "$folder/bin/mpiexec" -n 3 "$folder/bin/python" "$folder/with_mpi.py")"
echo "$seen"
[ "$seen" = "torch: rank 2 is 1 [0, 2]
MPI: rank 2 is 0 [2, 0]" ] || { echo "they no longer behave as described" >&2; exit 1; }
