// SPDX-License-Identifier: Apache-2.0
// A launcher holds several descriptors per host, and a rendezvous one per rank.
#include "rendezvous/os/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace hora::os {

std::size_t raise_file_limit(std::size_t least) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  // The soft limit is low (1024) for the sake of select(), which nothing here uses.
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(least, limit.rlim_max);
  if (raised.rlim_cur > limit.rlim_cur && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<std::size_t>(limit.rlim_cur);
}

}  // namespace hora::os
