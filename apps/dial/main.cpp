// SPDX-License-Identifier: Apache-2.0
// hora-dial: adds the host on which an engine has started it to the job of the horarun that called
// the engine: `horarun --join` for hosts where nothing is installed. horarun brings it there
// (launcher/dial/); nothing else reads this command line.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "launcher/dial/dial_protocol.h"
#include "launcher/dial/join.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/limits.h"
#include "rendezvous/os/threads.h"

namespace {

using namespace hora;
using namespace hora::launcher;

constexpr std::size_t kLongestLine = 4096;

// Byte by byte: our parent may share the input.
std::string read_line() {
  std::string line;
  char c = 0;
  while (line.size() < kLongestLine && ::read(STDIN_FILENO, &c, 1) == 1 && c != '\n') {
    line.push_back(c);
  }
  return line;
}

// The cache keeps what was used lately.
void mark_as_used() { (void)::utimensat(AT_FDCWD, "/proc/self/exe", nullptr, 0); }

// The start script names this program by its whole path, in the folder that it has chosen.
std::string folder_of(const std::string& program) {
  return program.substr(0, 1) == "/" ? program.substr(0, program.rfind('/')) : "";
}

Result<int> dial(const std::string& host, const std::string& launcher, std::string cache) {
  auto url = parse_join_url(read_line());
  if (!url) return std::move(url).error();
  JoinOptions options;
  options.url = std::move(*url);
  // The way on which the engine's own command is reached, before all others.
  if (!launcher.empty()) {
    auto& addresses = options.url.addresses;
    const JoinUrl::Address first{launcher, addresses.front().port};
    addresses.erase(std::remove(addresses.begin(), addresses.end(), first), addresses.end());
    addresses.insert(addresses.begin(), first);
  }
  options.name = host;
  options.cache = std::move(cache);
  options.silent = true;
  options.timeout = kStepDialTimeout;
  return join_job(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs(
        "usage: hora-dial NONCE HOST LAUNCHER COPIES\nhorarun starts it. Do not run it by hand.\n",
        stderr);
    return kExitUsage;
  }
  const std::string nonce = argv[1], host = argv[2], launcher = argv[3], copies = argv[4];
  ::signal(SIGPIPE, SIG_IGN);
  os::give_threads_stacks();
  os::exit_when_out_of_resources("hora-dial", kExitLauncher);
  mark_as_used();
  const auto code = dial(host, launcher, folder_of(argv[0]));
  if (!code) {
    const std::string line = step_failure(nonce, host, code.error().message);
    (void)!::write(STDOUT_FILENO, line.data(), line.size());
  }
  // The engine copies its files to every host of the step, even where they existed already.
  if (copies.empty()) return code ? *code : int{kExitLauncher};
  for (int i = 0; i < kStepFiles; ++i) ::unlink(step_copy(copies, i).c_str());
  return code ? *code : int{kExitLauncher};
}
