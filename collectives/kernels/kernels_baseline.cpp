// SPDX-License-Identifier: Apache-2.0
// The kernels for every processor of the architecture.
#define HORA_KERNEL_NAME kBaselineKernels
#define HORA_KERNEL_LABEL "baseline"
#include "collectives/kernels/kernels_impl.inc"
