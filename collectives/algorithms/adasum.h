// SPDX-License-Identifier: Apache-2.0
// Adasum (Maleki et al., arXiv:2006.02924): a sum of gradients that adds orthogonal components and
// averages parallel ones. It uses recursive vector halving and distance doubling over a power of
// two of ranks, built from the alltoall and allgather of any backend that moves host memory.
//
// All ranks get the same bits.
#pragma once

#include "collectives/backend.h"

namespace hora::collectives {

// The allreduce of `step` with HORA_ADASUM, each piece by itself, on the rank of that index among
// `size`. Half precisions are computed in float32 and rounded at the end. Blocks; false: `error`
// says why.
bool adasum(Backend& backend, int index, int size, const Step& step, ErrorText& error);

}  // namespace hora::collectives
