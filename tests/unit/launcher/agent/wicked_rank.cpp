// SPDX-License-Identifier: Apache-2.0
// A rank that does its best to be forgotten.  wicked_rank WORD feature...
//   ignore-term  ignores TERM, INT, HUP, QUIT       setsid       a session of its own
//   double-fork  the middle process ends             close-fds    closes 0, 1, 2 and all others
//   clear-env    executes with an empty environment  stop         stops itself
//   leave        the rank itself ends at once, with code 0; else it waits to be killed
//   storm        keeps forking children that each fork one and end
//   chain        forks one child and ends, which does the same, without a pause; a new session each
//                time with setsid
//   leave-cgroup goes back into the cgroup above the job's, where it may
//   main-ends    main threads end, others wait
//   own-group    a process group of its own         join-agent   the rank joins its parent's group
// The hidden process executes "wicked_rank WORD wait", so that it is seen by its argument.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>

extern char** environ;

namespace {

std::set<std::string> features;

bool wants(const char* feature) { return features.count(feature) > 0; }

[[noreturn]] void wait_for_the_end() {
  if (wants("stop")) ::raise(SIGSTOP);
  if (wants("main-ends")) {
    std::thread([] {
      for (;;) ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);
  }
  for (;;) ::pause();
}

[[noreturn]] void storm() {
  for (;;) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::fork() == 0) {
        ::usleep(20'000);  // lives for a moment, to keep the number of processes bounded
        storm();
      }
      ::_exit(0);
    }
    if (child < 0) ::usleep(1'000);
    for (;;) ::pause();
  }
}

[[noreturn]] void chain(const std::string& word, int until_hidden) {
  // Lives as long as some process of the chain does, even if that one was missed.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = word + "-" + std::to_string(::getpid());
  std::memcpy(name.sun_path + 1, text.data(), std::min(text.size(), sizeof name.sun_path - 1));
  const int held = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::bind(held, reinterpret_cast<const sockaddr*>(&name), size) != 0) ::_exit(8);
  ::close(until_hidden);
  // By itself, when a test that fails leaves it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    if (wants("setsid")) ::setsid();
    const pid_t child = ::fork();
    if (child > 0) ::_exit(0);
    if (child < 0) ::usleep(1'000);
  }
  ::_exit(0);
}

// The first of /proc/self/cgroup's lines that is version 2's, without its last part.
void leave_cgroup() {
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (line.rfind("0::", 0) != 0 || line.find("/hora-") == std::string::npos) continue;
    const std::string above = line.substr(3, line.rfind('/') - 3);
    for (const char* mount : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}) {
      std::ofstream(mount + above + "/cgroup.procs") << "0" << std::flush;
    }
  }
}

[[noreturn]] void hide(char* program, char* word, int until_hidden) {
  if (wants("setsid")) ::setsid();
  if (wants("own-group")) ::setpgid(0, 0);
  if (wants("double-fork") && ::fork() != 0) ::_exit(0);
  if (wants("close-fds")) ::syscall(SYS_close_range, 0u, ~0u, 0u);
  if (wants("leave-cgroup")) leave_cgroup();
  if (wants("storm") || wants("chain")) {
    if (wants("chain")) chain(word, until_hidden);
    ::close(until_hidden);
    storm();
  }
  char waiting[] = "wait";
  char stop[] = "stop";
  char main_ends[] = "main-ends";
  char* how = wants("stop") ? stop : wants("main-ends") ? main_ends : nullptr;
  char* argv[] = {program, word, waiting, how, nullptr};
  char* empty[] = {nullptr};
  ::execve("/proc/self/exe", argv, wants("clear-env") ? empty : environ);
  ::_exit(9);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  for (int i = 2; i < argc; ++i) features.insert(argv[i]);
  if (wants("wait")) wait_for_the_end();
  if (wants("ignore-term")) {
    for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  }
  // Refused where the rank leads a session.
  if (wants("join-agent")) (void)::setpgid(0, ::getpgid(::getppid()));
  int hidden[2];  // ends when the other has executed, or closed all it had
  if (::pipe2(hidden, O_CLOEXEC) != 0) return 3;
  if (::fork() == 0) hide(argv[0], argv[1], hidden[1]);
  ::close(hidden[1]);
  char nothing = 0;
  if (::read(hidden[0], &nothing, 1) != 0) return 4;
  std::printf("hidden\n");
  std::fflush(stdout);
  if (wants("leave")) return 0;
  wait_for_the_end();
}
