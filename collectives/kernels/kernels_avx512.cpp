// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX-512; the build compiles this file with those instructions.
#define HORA_KERNEL_NAME kAvx512Kernels
#define HORA_KERNEL_LABEL "avx512"
#include "collectives/kernels/kernels_impl.inc"
