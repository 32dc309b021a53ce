// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/open_files_limit.h"

#include <algorithm>

#include "rendezvous/os/log.h"

namespace hora::launcher {

OpenFilesLimit::OpenFilesLimit(std::size_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, needed);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    os::log_debug("horarun", "the limit of open files could not be raised");
    return;
  }
  before_ = before;
}

OpenFilesLimit::~OpenFilesLimit() {
  rlimit limit{};
  if (before_ == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = before_;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // lowering a soft limit does not fail
}

}  // namespace hora::launcher
