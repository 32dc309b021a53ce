# SPDX-License-Identifier: Apache-2.0
from support.check_jobs import checks_as_tests

test, test_job_ends_well = checks_as_tests("torch_endurance.py", ranks=(1, 2))
