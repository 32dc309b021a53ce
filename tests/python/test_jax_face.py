# SPDX-License-Identifier: Apache-2.0
from support.frameworks import checks_with

test, test_job_ends_well = checks_with("jax", "jax_face.py", ranks=(1, 2, 4))
