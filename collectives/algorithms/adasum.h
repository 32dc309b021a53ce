// Adasum (Maleki et al., arXiv:2006.02924): a sum of gradients that adds what is orthogonal and
// averages what is parallel. By recursive vector halving and distance doubling over a power of two
// of ranks, out of the alltoall and allgather of any backend that moves host memory.
//
// All ranks get the same bits.
#pragma once

#include "collectives/backends/backend.h"

namespace hora::collectives {

// The allreduce of `step` with HORA_ADASUM, each piece by itself, on the rank of that index among
// `size`. Half precisions are computed in float32 and rounded at the end.
bool adasum(Backend& backend, int index, int size, const Step& step, ErrorText& error);

}  // namespace hora::collectives
