#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   coreutils 9.1 (Debian 12)
# behaviour: nproc prints OMP_NUM_THREADS where it is set, which torchrun and horarun do for their ranks, and also more than
#            there are; of a list the first number, and no more than OMP_THREAD_LIMIT. --all ignores both. So in a rank
#            `make -j$(nproc)` or a number of loader processes is the number of threads, often 1.
# guess:     the processors that the process may use, as its --help says
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; horarun itself asks the kernel and the cgroup
set -euo pipefail
may_use=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
seen=$(nproc --version | sed -n '1s/.* //p'
for variable in OMP_NUM_THREADS=1 OMP_NUM_THREADS=$((may_use + 3)) OMP_NUM_THREADS=1,4 OMP_THREAD_LIMIT=1; do
  echo "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT "$variable" nproc)"
done
[ "$(OMP_NUM_THREADS=1 nproc --all)" -ge "$may_use" ] && echo all)
echo "$seen"
[ "$seen" = "9.1
1
$((may_use + 3))
1
1
all" ] || { echo "nproc no longer behaves as described" >&2; exit 1; }
