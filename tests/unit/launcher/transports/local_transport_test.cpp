// SPDX-License-Identifier: Apache-2.0
// The local transport with a shell script in place of the agent.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

#include "launcher/process/process_table.h"
#include "launcher/transports/transport.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

class Script {
 public:
  explicit Script(const std::string& text)
      : path_("/tmp/hora-local-" + std::to_string(::getpid()) + ".sh") {
    std::ofstream(path_) << "#!/bin/sh\n" << text << "\n";
    ::chmod(path_.c_str(), 0700);
  }
  ~Script() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

pid_t read_pid(int fd) {
  std::string text;
  char byte = 0;
  while (::read(fd, &byte, 1) == 1 && byte != '\n') text.push_back(byte);
  pid_t pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  return pid;
}

bool comes_to(pid_t pid, Standing standing) {
  for (int look = 0; look < 20'000; ++look) {
    if (pulse_of(pid).standing == standing) return true;
    ::usleep(1'000);
  }
  return false;
}

}  // namespace

TEST_CASE("an agent that was stopped as it started is continued at the end") {
  const Script agent("echo $$; kill -STOP $$; exec cat >/dev/null");
  auto transport = make_local_transport({});
  AgentImage image;
  image.builds = {{"", agent.path(), "", ""}};
  auto stream = transport->start({}, 0, image, {});
  REQUIRE(stream);
  const pid_t pid = read_pid(stream->get());
  REQUIRE(pid > 0);
  REQUIRE(comes_to(pid, Standing::kStopped));
  stream->reset();
  transport.reset();
  CHECK(comes_to(pid, Standing::kGone));
  ::kill(pid, SIGKILL);
}

}  // namespace hora::launcher
