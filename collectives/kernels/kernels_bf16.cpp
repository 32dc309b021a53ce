// SPDX-License-Identifier: Apache-2.0
// The kernels for FEAT_BF16 and FEAT_FP16 (ARMv8.6, and some processors before it); the build
// compiles this file with those instructions.
#define HORA_KERNEL_NAME kBf16Kernels
#define HORA_KERNEL_LABEL "bf16"
#include "collectives/kernels/kernels_impl.inc"
