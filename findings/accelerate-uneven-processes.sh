#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   accelerate 1.15.0 on PyTorch 2.15.0
# behaviour: `accelerate launch --num_machines 2 --num_processes 3` trains with two processes, one on each machine, and
#            exits with 0: the number of all processes is divided by the machines, and the rest is dropped without a word
# guess:     two processes on one machine and one on the other, as mpirun does, or an error
# seen:      2026-11-29: "rank 0 of 2" and "rank 1 of 2", exit codes 0 and 0
# relies:    horarun starts -np ranks on unequal hosts: launcher/plan, "np is an upper bound and 0 means every slot"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 accelerate==1.15.0 || { echo "needs PyPI"; exit 77; }
echo 'import os; print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])' >"$folder/program.py"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
launch() {
  timeout 180 "$folder/bin/accelerate" launch --multi_gpu --num_machines 2 --num_processes 3 --machine_rank "$1" \
    --main_process_ip 127.0.0.1 --main_process_port "$port" --mixed_precision no --dynamo_backend no \
    "$folder/program.py" 2>"$folder/log$1"
}
export HF_HOME=$folder
launch 0 >"$folder/first" &
second=$(launch 1) || { tail "$folder/log1" >&2; exit 1; }
wait $! || { tail "$folder/log0" >&2; exit 1; }
seen=$(printf '%s\n' "$(cat "$folder/first")" "$second" | sort)
echo "$seen"
[ "$seen" = "rank 0 of 2
rank 1 of 2" ] || { echo "accelerate no longer behaves as described" >&2; exit 1; }
