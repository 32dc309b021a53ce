#define HORA_KERNEL_NAME kernels_avx2
#define HORA_KERNEL_LABEL "avx2"
#include "collectives/kernels/kernels_impl.inc"
