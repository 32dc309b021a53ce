#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   NCCL 2.14.3 and 2.32.3 (nvidia-nccl-cu11, nvidia-nccl-cu12)
# behaviour: in ~/.nccl.conf and /etc/nccl.conf, a blank before the name or the `=` makes a line void without a word; what
#            follows the value, a comment too, belongs to it; of two lines the first counts; the environment wins over
#            both. `~` is the home folder of the password database in 2.14.3, and $HOME in 2.32.3, which is another one
#            in a container or with `HOME=/scratch/me`.
# guess:     NAME = VALUE means NAME=VALUE, a comment may follow it, the last line wins, and ~ is $HOME
# seen:      2026-11-29, the lines that the script compares
# relies:    rendezvous/contract/worker_env.cpp: horarun sets NCCL_SOCKET_IFNAME, over a file of the host
set -euo pipefail
folder=$(mktemp -d /var/tmp/finding.XXXXXX)
trap 'rm -rf "$folder"' EXIT
unshare -rm true 2>/dev/null || { echo "this user cannot make a mount namespace"; exit 77; }
[ -x /usr/bin/python3 ] || { echo "needs /usr/bin/python3"; exit 77; }
for package in nvidia-nccl-cu11==2.14.3 nvidia-nccl-cu12==2.32.3; do
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --no-deps --target "$folder/$package" "$package" ||
    { echo "needs PyPI"; exit 77; }
done
cat >"$folder/ask" <<'SH'
# The password database says that this user, root in here, lives in /root. lo is an interface that NCCL takes only by name.
folder=$1
mount -t tmpfs none /root
mkdir "$folder/home"
uses() {
  HOME=$1 NCCL_DEBUG=INFO /usr/bin/python3 -c '
import ctypes, sys
ctypes.CDLL(sys.argv[1]).ncclGetUniqueId(ctypes.create_string_buffer(128))' "$library" 2>&1 |
    grep -q 'Bootstrap *: Using lo:' && echo lo || echo "not lo"
}
for package in nvidia-nccl-cu11==2.14.3 nvidia-nccl-cu12==2.32.3; do
  library=$folder/$package/nvidia/nccl/lib/libnccl.so.2
  for line in 'NCCL_SOCKET_IFNAME=lo' 'NCCL_SOCKET_IFNAME = lo' ' NCCL_SOCKET_IFNAME=lo' 'NCCL_SOCKET_IFNAME=lo # one' \
    'NCCL_SOCKET_IFNAME=lo\nNCCL_SOCKET_IFNAME=none'; do
    printf "$line\n" >/root/.nccl.conf
    printf '%s %s: %s\n' "${package#*==}" "$line" "$(uses /root)"
  done
  echo "${package#*==} environment: $(NCCL_SOCKET_IFNAME=none uses /root)"
  echo 'NCCL_SOCKET_IFNAME=lo' >/root/.nccl.conf
  echo "${package#*==} of the password database: $(uses "$folder/home")"
  mv /root/.nccl.conf "$folder/home"
  echo "${package#*==} of \$HOME: $(uses "$folder/home")"
  rm "$folder/home/.nccl.conf"
done
SH
seen=$(unshare -rm sh "$folder/ask" "$folder")
echo "$seen"
same='NCCL_SOCKET_IFNAME=lo: lo
NCCL_SOCKET_IFNAME = lo: not lo
 NCCL_SOCKET_IFNAME=lo: not lo
NCCL_SOCKET_IFNAME=lo # one: not lo
NCCL_SOCKET_IFNAME=lo\nNCCL_SOCKET_IFNAME=none: lo
environment: not lo'
[ "$seen" = "$(echo "$same" | sed 's/^/2.14.3 /')
2.14.3 of the password database: lo
2.14.3 of \$HOME: not lo
$(echo "$same" | sed 's/^/2.32.3 /')
2.32.3 of the password database: not lo
2.32.3 of \$HOME: lo" ] || { echo "NCCL no longer behaves as described" >&2; exit 1; }
