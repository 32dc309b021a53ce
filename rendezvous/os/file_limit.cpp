// SPDX-License-Identifier: Apache-2.0
// A launcher holds several descriptors per host, and a rendezvous one per rank.
#include "rendezvous/os/file_limit.h"

#include <sys/resource.h>

namespace hora::os {

std::size_t raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  // The soft limit is low (1024) for the sake of select(), which nothing here uses.
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  if (limit.rlim_cur != limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<std::size_t>(limit.rlim_cur);
}

}  // namespace hora::os
