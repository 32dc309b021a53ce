// SPDX-License-Identifier: Apache-2.0
#include "launcher/control/control_folder.h"

#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/text.h"

namespace hora::launcher {

// Both are tried everywhere: a job may have been started in a session that has the variable, and be
// looked for from one that does not (sudo, cron, ssh without pam_systemd).
std::vector<std::string> control_folders(const std::string& runtime_directory) {
  std::vector<std::string> folders;
  if (runtime_directory.starts_with('/')) folders.push_back(runtime_directory + "/hora");
  folders.push_back("/tmp/hora-" + std::to_string(::geteuid()));
  return folders;
}

// A socket's address has 107 bytes at most, which $XDG_RUNTIME_DIR alone may exceed.
sockaddr_un control_address(const os::Fd& folder, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + name;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// Only what a launcher writes: "017" is another name than "17".
int job_of_name(const std::string& name) {
  const int job = parse_int<int>(name).value_or(0);
  return job > 0 && std::to_string(job) == name ? job : 0;
}

}  // namespace hora::launcher
