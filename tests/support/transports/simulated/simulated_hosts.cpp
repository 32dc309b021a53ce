// SPDX-License-Identifier: Apache-2.0
// Plays all hosts of a job, in one process, for a launcher that it starts:
//   hora-simulated-hosts REPORT horarun-simulated --transport simulated -H HOSTS simulated-rank ...
// REPORT gets one line of JSON (launcher_meter.h). Ends with the launcher's exit code, 128 +
// signal, or 125 when the launcher said what no launcher says. The names of hosts say how they
// behave (simulated_host.h), the command what ranks do (rank_script.h).
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/os/limits.h"
#include "rendezvous/os/process_end.h"
#include "tests/support/transports/simulated/handed_over.h"
#include "tests/support/transports/simulated/launcher_meter.h"
#include "tests/support/transports/simulated/simulated_host.h"

namespace hora::test {

namespace {

class World {
 public:
  World(os::EventLoop& loop, os::Fd channel) : loop_(loop), channel_(std::move(channel)) {}

  Status begin(pid_t launcher) {
    meter_.begin(launcher);
    HORA_TRY(loop_.watch(channel_.get(), EPOLLIN, [this](std::uint32_t) { take_streams(); }));
    auto end = os::ProcessEnd::watch(loop_, launcher, [this] { loop_.stop(); });
    if (!end) return std::move(end).error();
    launcher_end_ = std::move(*end);
    return Ok{};
  }

  const LauncherMeter& meter() const { return meter_; }
  int hosts() const { return count_; }
  bool broken() const { return broken_; }

 private:
  // All that wait: between them the launcher can go on.
  void take_streams() {
    while (true) {
      char name[512];
      iovec text{name, sizeof name};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
      msghdr message{};
      message.msg_iov = &text;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t got = ::recvmsg(channel_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return;
      const cmsghdr* header = CMSG_FIRSTHDR(&message);
      if (got == 0 || header == nullptr) return loop_.unwatch(channel_.get());
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      add(os::Fd(fd), std::string(name, static_cast<std::size_t>(got)));
    }
  }

  void add(os::Fd stream, std::string name) {
    const int index = count_++;
    SimulatedHost::Handlers handlers;
    handlers.reached = [this](Step step) { meter_.reach(step); };
    handlers.counted = [this](launcher::FrameType type, std::size_t bytes, bool sent) {
      meter_.count(type, bytes, sent);
    };
    handlers.broken = [this](const std::string& why) {
      std::fprintf(stderr, "hora-simulated-hosts: %s\n", why.c_str());
      broken_ = true;
    };
    handlers.over = [this, index] { hosts_[static_cast<std::size_t>(index)].reset(); };
    hosts_.push_back(std::make_unique<SimulatedHost>(loop_, std::move(stream), std::move(name),
                                                     index, std::move(handlers)));
    if (const Status begun = hosts_.back()->begin(); !begun) {
      std::fprintf(stderr, "hora-simulated-hosts: %s\n", begun.error().message.c_str());
      broken_ = true;
    }
  }

  os::EventLoop& loop_;
  os::Fd channel_;
  LauncherMeter meter_;
  std::unique_ptr<os::ProcessEnd> launcher_end_;
  std::vector<std::unique_ptr<SimulatedHost>> hosts_;
  int count_ = 0;
  bool broken_ = false;
};

// The launcher inherits the one descriptor that it needs.
pid_t start(char** argv, int channel) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int inherited = ::dup(channel);  // NOLINT(android-cloexec-dup)
  ::setenv(kHandOverVariable, std::to_string(inherited).c_str(), 1);
  ::execvp(argv[0], argv);
  std::perror(argv[0]);
  ::_exit(127);
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

Result<int> play(const char* report, char** argv) {
  // Two descriptors of a pair, and files besides: for both processes.
  os::raise_file_limit();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error(errno, "making the channel");
  }
  os::Fd ours(ends[0]);
  os::Fd theirs(ends[1]);
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  const pid_t launcher = start(argv, theirs.get());
  if (launcher < 0) return errno_error(errno, "starting the launcher");
  theirs.reset();
  World world(**loop, std::move(ours));
  HORA_TRY(world.begin(launcher));
  HORA_TRY((*loop)->run());
  int status = 0;
  rusage usage{};
  if (::wait4(launcher, &status, 0, &usage) != launcher) {
    return errno_error(errno, "waiting for the launcher");
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::ofstream out(report);
  out << world.meter().report(world.hosts(), seconds(usage.ru_utime) + seconds(usage.ru_stime),
                              usage.ru_maxrss, code)
      << "\n";
  if (!out.flush())
    return make_error(ErrorCode::kFailed, std::string(report) + ": cannot be written");
  return world.broken() ? 125 : code;
}

}  // namespace

}  // namespace hora::test

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: hora-simulated-hosts REPORT LAUNCHER ARGUMENT...\n");
    return 2;
  }
  const auto code = hora::test::play(argv[1], argv + 2);
  if (code) return *code;
  std::fprintf(stderr, "hora-simulated-hosts: %s\n", code.error().message.c_str());
  return 125;
}
