// SPDX-License-Identifier: Apache-2.0
// A higher limit of open files for this process, while this object lives. The limit belongs to the
// whole process, so have one object at a time.
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace hora::launcher {

class OpenFilesLimit {
 public:
  // As far as the hard limit allows; never lowers it. Children started meanwhile inherit it.
  explicit OpenFilesLimit(std::size_t needed);
  ~OpenFilesLimit();
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;

 private:
  rlim_t before_ = 0;  // 0: nothing was changed
};

}  // namespace hora::launcher
