// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX2 with F16C; the build compiles this file with those instructions.
#define HORA_KERNEL_NAME kAvx2Kernels
#define HORA_KERNEL_LABEL "avx2"
#include "collectives/kernels/kernels_impl.inc"
