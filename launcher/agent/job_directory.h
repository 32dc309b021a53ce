// SPDX-License-Identifier: Apache-2.0
// A private folder for one job on one host: the files that the user ships. The destructor removes
// it with all in it. One thread at a time.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/result.h"

namespace hora::launcher {

class JobDirectory {
 public:
  // In $TMPDIR, /tmp, /var/tmp or /dev/shm, the first that works. `announce` is told the path
  // before it exists, and an empty one once it is gone.
  static Result<JobDirectory> create(std::function<Status(const std::string&)> announce);
  JobDirectory(JobDirectory&& other) noexcept;
  JobDirectory& operator=(JobDirectory&&) = delete;
  ~JobDirectory();

  const std::string& path() const { return path_; }

 private:
  JobDirectory(std::string path, std::function<Status(const std::string&)> announce)
      : path_(std::move(path)), announce_(std::move(announce)) {}
  std::string path_;  // empty: moved from
  std::function<Status(const std::string&)> announce_;
};

}  // namespace hora::launcher
