# SPDX-License-Identifier: Apache-2.0
from support.gpu_double_jobs import checks_on_doubles

test, test_job_ends_well = checks_on_doubles("device_arrays_on_gpu_double.py")
