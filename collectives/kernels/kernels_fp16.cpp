// SPDX-License-Identifier: Apache-2.0
// The kernels for FEAT_FP16 (ARMv8.2); the build compiles this file with those instructions.
#define HORA_KERNEL_NAME kFp16Kernels
#define HORA_KERNEL_LABEL "fp16"
#include "collectives/kernels/kernels_impl.inc"
