# SPDX-License-Identifier: Apache-2.0
from support.frameworks import checks_with

test, test_job_ends_well = checks_with("jax", "jax_face.py", ranks=(1, 2, 4))
test_several_devices, test_job_of_several_devices_ends_well = checks_with(
    "jax", "jax_devices.py", ranks=(2,), XLA_FLAGS="--xla_force_host_platform_device_count=2"
)
