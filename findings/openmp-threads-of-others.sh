#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   pyarrow 26.0.1, numexpr 2.14.2, polars 2.1.0, duckdb 2.0.1, opencv-python-headless 5.0.0.93, numba 0.68.1
# behaviour: pyarrow and numexpr take OMP_NUM_THREADS for their number of threads, although neither uses OpenMP; polars,
#            DuckDB, OpenCV and numba start one for each CPU that the process may use.
# guess:     a launcher that sets OMP_NUM_THREADS keeps the threads of all ranks within the CPUs of the host, or concerns
#            what uses OpenMP alone
# seen:      2026-11-30, on two CPUs
# relies:    docs/reference/frameworks.md, which says how to limit each; horarun sets OMP_NUM_THREADS
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q duckdb==2.0.1 numba==0.68.1 numexpr==2.14.2 opencv-python-headless==5.0.0.93 polars==2.1.0 pyarrow==26.0.1 || { echo "needs PyPI"; exit 77; }
cat >"$folder/show.py" <<'PYTHON'
import os

import cv2
import duckdb
import numba
import numexpr
import polars
import pyarrow

cpus = len(os.sched_getaffinity(0))
counts = {
    "pyarrow": pyarrow.cpu_count(),
    "numexpr": numexpr.nthreads,
    "polars": polars.thread_pool_size(),
    "duckdb": duckdb.connect().execute("select current_setting('threads')").fetchall()[0][0],
    "opencv": cv2.getNumThreads(),
    "numba": numba.get_num_threads(),
}
print({name: "all" if count == cpus else count for name, count in counts.items()})
PYTHON
taskset -c 0,1 true 2>/dev/null || { echo "needs two CPUs"; exit 77; }
seen=$(OMP_NUM_THREADS=1 taskset -c 0,1 "$folder/bin/python" "$folder/show.py"
  OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 NUMBA_NUM_THREADS=1 taskset -c 0,1 "$folder/bin/python" "$folder/show.py")
echo "$seen"
[ "$seen" = "{'pyarrow': 1, 'numexpr': 1, 'polars': 'all', 'duckdb': 'all', 'opencv': 'all', 'numba': 'all'}
{'pyarrow': 1, 'numexpr': 1, 'polars': 1, 'duckdb': 'all', 'opencv': 'all', 'numba': 1}" ] || { echo "threads are no longer counted as described" >&2; exit 1; }
