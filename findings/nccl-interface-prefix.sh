#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   NCCL 2.14.3 and 2.32.3 (nvidia-nccl-cu11, nvidia-nccl-cu12)
# behaviour: a name in NCCL_SOCKET_IFNAME is a prefix. With eth1, NCCL uses eth10 if the kernel lists that one
#            first; a VLAN of the interface (eth1.5) matches, too. A '=' before the list makes its names exact.
# guess:     eth1 selects eth1, as in Gloo's, Open MPI's and UCX's variables
# seen:      2026-11-28, both versions: "eth1: eth10", "=eth1: eth1"
# relies:    rendezvous/contract/worker_env.cpp (host_environment), launcher/network/network_choice.cpp
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unshare -rn true 2>/dev/null || { echo "this user cannot make a network namespace"; exit 77; }

for package in nvidia-nccl-cu11==2.14.3 nvidia-nccl-cu12==2.32.3; do
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --no-deps --target "$folder/$package" "$package"
done
cat >"$folder/ask" <<'END'
# Two interfaces, the longer name first. A unique id names the interface that NCCL would be reached by.
for interface in eth10 eth1; do
  ip link add "$interface" type veth peer name "peer${interface#eth}"
  ip link set "$interface" up
  ip link set "peer${interface#eth}" up
  ip addr add "10.1.${interface#eth}.1/24" dev "$interface"
done
for package in "$1"/nvidia-nccl-*; do
  for list in eth1 =eth1; do
    used=$(NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=$list python3 -c '
import ctypes, sys
ctypes.CDLL(sys.argv[1]).ncclGetUniqueId(ctypes.create_string_buffer(128))' \
      "$package/nvidia/nccl/lib/libnccl.so.2" 2>&1 | sed -n 's/.*Bootstrap *: Using \([a-z0-9]*\):.*/\1/p')
    echo "${package##*/} $list: $used"
  done
done
END
seen=$(unshare -rn sh "$folder/ask" "$folder")
echo "$seen"
[ "$seen" = "nvidia-nccl-cu11==2.14.3 eth1: eth10
nvidia-nccl-cu11==2.14.3 =eth1: eth1
nvidia-nccl-cu12==2.32.3 eth1: eth10
nvidia-nccl-cu12==2.32.3 =eth1: eth1" ] || { echo "NCCL no longer behaves as described" >&2; exit 1; }
