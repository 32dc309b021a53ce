# SPDX-License-Identifier: Apache-2.0
from support.check_jobs import checks_as_tests

test, test_job_ends_well = checks_as_tests("numpy_ops.py", "process_sets.py")
test_static_process_sets, test_job_with_static_process_sets_ends_well = checks_as_tests("static_process_sets.py")
test_timeline, test_job_with_a_timeline_ends_well = checks_as_tests(
    "timeline.py", ranks=(1, 2), HOROVOD_TIMELINE="DYNAMIC"
)
test_interrupted, test_interrupted_job_ends_well = checks_as_tests("interrupted.py", ranks=(2,))
