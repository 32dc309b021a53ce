#define HORA_KERNEL_NAME kernels_avx512
#define HORA_KERNEL_LABEL "avx512"
#include "collectives/kernels/kernels_impl.inc"
