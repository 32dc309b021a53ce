#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   JAX 0.10.2; 0.4.30 behaves alike
# behaviour: for the coordinator's address, JAX takes the node list of Slurm up to the first bracket, and the first number in
#            it: of n[1-2]-ib0 it makes n1, of r[1-2]n[1-4] r1, neither of which is a node.
# guess:     it is the first node, n1-ib0 and r1n1, as scontrol show hostnames prints it
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/howto/jax.md, which says to give the address where nodes have such names; under horarun JAX finds the
#            address in its own variables
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for release in 0.4.30 0.10.2; do
  python3 -m venv "$folder/$release"
  "$folder/$release/bin/pip" install -q "jax==$release" "jaxlib==$release" 'numpy<3' || { echo "needs PyPI"; exit 77; }
  seen=$(for nodes in 'n[1-2]' 'n[1-2]-ib0' 'n[1-2].cluster' 'r[1-2]n[1-4]' 'b1,a[1-2]'; do
    echo "$nodes $(SLURM_JOB_ID=1234 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NODELIST=$nodes \
      "$folder/$release/bin/python" -W ignore - <<'PYTHON'
import inspect

from jax._src.clusters.slurm_cluster import SlurmCluster

find = SlurmCluster.get_coordinator_address
given = {"timeout_secs": 5, "override_coordinator_port": None}
print(find(**{name: value for name, value in given.items() if name in inspect.signature(find).parameters}).split(":")[0])
PYTHON
)"
  done)
  echo "jax $release"
  echo "$seen"
  [ "$seen" = "n[1-2] n1
n[1-2]-ib0 n1
n[1-2].cluster n1
r[1-2]n[1-4] r1
b1,a[1-2] b1" ] || { echo "JAX no longer reads node lists as described" >&2; exit 1; }
done
