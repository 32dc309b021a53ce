// SPDX-License-Identifier: Apache-2.0
// The kernels for every processor of the architecture.
#define HORA_KERNEL_NAME kernels_baseline
#define HORA_KERNEL_LABEL "baseline"
#include "collectives/kernels/kernels_impl.inc"
