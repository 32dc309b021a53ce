// SPDX-License-Identifier: Apache-2.0
// Which CUDA the NCCL of this process was built for.
#pragma once

namespace hora::collectives::nccl {

// Of the library that has the function: 13000 is CUDA 13.0. 0: it does not say.
int built_for(const void* function);

}  // namespace hora::collectives::nccl
