// SPDX-License-Identifier: Apache-2.0
// Whether ranks have to share a GPU, which NCCL refuses, before anybody has chosen one.  [pure]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hora::collectives::nccl {

// Ranks of one host, by place in their set, that may all use these GPUs only, and are more than
// those. Both arguments are by place: the host's number, and the PCI bus ids of the GPUs that the
// rank may use (none: not known, so it is not counted). Empty: nobody has to share.
std::vector<int> ranks_that_share(std::span<const std::int32_t> hosts,
                                  std::span<const std::vector<std::string>> gpus);

}  // namespace hora::collectives::nccl
