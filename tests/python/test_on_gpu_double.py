# SPDX-License-Identifier: Apache-2.0
from support.gpu_double_jobs import checks_on_doubles

test_arrays, test_job_of_arrays_ends_well = checks_on_doubles("device_arrays_on_gpu_double.py")
test_torch, test_job_of_torch_ends_well = checks_on_doubles("torch_on_gpu_double.py", "torch")
