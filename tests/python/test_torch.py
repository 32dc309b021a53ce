# SPDX-License-Identifier: Apache-2.0
from support.check_jobs import checks_as_tests

test, test_job_ends_well = checks_as_tests(
    "torch_ops.py",
    "torch_mistakes.py",
    "torch_gradients.py",
    "torch_optimizer.py",
    "torch_scripts.py",
    "torch_adasum.py",
    "torch_elastic.py",
    timeout=400,
    HORA_TEST_DUMP_AFTER="380",
)
test_endurance, test_job_of_endurance_ends_well = checks_as_tests("torch_endurance.py", ranks=(1, 2))
