// SPDX-License-Identifier: Apache-2.0
// A private directory for the job's files. It is announced to the shim before it exists, so that a
// kill at any moment leaves nothing behind.
#include "launcher/agent/job_directory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "launcher/agent/remove_tree.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

bool lets_programs_run(const std::string& directory) {
  struct statvfs system {};
  return ::statvfs(directory.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) == 0;
}

}  // namespace

Result<JobDirectory> JobDirectory::create(std::function<Status(const std::string&)> announce) {
  std::vector<std::string> parents;
  const char* temporary = std::getenv("TMPDIR");
  if (temporary != nullptr && temporary[0] == '/') parents.emplace_back(temporary);
  parents.insert(parents.end(), {"/tmp", "/var/tmp", "/dev/shm"});
  // Shipped programs have to run, and /tmp is often mounted noexec. If all are, data can still be
  // sent.
  // Stable: among equals, the user's TMPDIR stays first.
  std::stable_partition(parents.begin(), parents.end(), lets_programs_run);
  const std::string name = "/hora-job-" + os::random_token().substr(0, 16);
  std::string reasons;
  for (const std::string& parent : parents) {
    const std::string path = parent + name;
    HORA_TRY(announce(path));
    // mkdir fails on a name that exists, even if it is another user's symbolic link.
    if (::mkdir(path.c_str(), 0700) == 0) return JobDirectory(path, std::move(announce));
    if (!reasons.empty()) reasons += "; ";
    reasons += errno_error(errno, "creating " + path).message;
  }
  // Nothing was made, so nothing is left to remove.
  HORA_TRY(announce(""));
  return make_error(ErrorCode::kDenied, reasons);
}

JobDirectory::JobDirectory(JobDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), announce_(std::move(other.announce_)) {}

JobDirectory::~JobDirectory() {
  if (path_.empty()) return;
  // If the removal fails the announcement stays, and the shim tries again.
  if (remove_tree(path_)) (void)announce_("");
}

}  // namespace hora::launcher
