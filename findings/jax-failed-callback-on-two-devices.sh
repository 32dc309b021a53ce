#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   JAX 0.10.2 (CPU)
# behaviour: when an ordered io_callback raises in a program for one device, the next program with such a callback runs.
#            When it raises in a program for two devices, all later programs of this thread with an ordered callback fail
#            with the old error, also those for one device, and also after jax.effects_barrier(), which raises it, too.
# guess:     an error belongs to the call that raised it, on any number of devices
# seen:      2026-11-28, the lines that the script compares
# relies:    collectives/python/hora/jax_operations.py (recover), checks/jax_devices.py (check_use_after_an_error)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q jax==0.10.2 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }

cat >"$folder/program.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def fail(x):
    raise ValueError("first")


def call(function, x):
    return io_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=True)


def try_it(name, function, x):
    try:
        jax.block_until_ready(jax.jit(lambda x: call(function, x))(x))
        print(f"{name}: right")
    except Exception as error:
        print(f"{name}: {'the first error' if 'first' in str(error) else error}")


one = jnp.arange(4.0)
two = jax.device_put(one, NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec("d")))
try_it("fails on one device", fail, one)
try_it("then on one device", np.asarray, one)
try_it("fails on two devices", fail, two)
try_it("then on two devices", np.asarray, two)
try_it("then on one device", np.asarray, one)
try:
    jax.effects_barrier()
except Exception:
    print("the barrier raises")
try_it("after the barrier", np.asarray, one)
PYTHON
seen=$(JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=2 \
  "$folder/venv/bin/python" "$folder/program.py" 2>"$folder/log") || true
echo "$seen"
[ "$seen" = "fails on one device: the first error
then on one device: right
fails on two devices: the first error
then on two devices: the first error
then on one device: the first error
the barrier raises
after the barrier: the first error" ] || { tail "$folder/log" >&2; echo "JAX no longer behaves as described" >&2; exit 1; }
