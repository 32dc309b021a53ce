// SPDX-License-Identifier: Apache-2.0
// Writes what it was started with to standard output, as NUL-terminated records: A<argument>...
// E<environment entry>... C<working directory> F<open descriptor>... S<signal that is ignored or
// blocked>... P<process group> I<session> L<soft limit of open files>.
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>

extern char** environ;

namespace {

void record(char kind, const std::string& text) {
  std::fputc(kind, stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\0', stdout);
}

void report_descriptors() {
  DIR* directory = ::opendir("/proc/self/fd");
  while (const dirent* item = ::readdir(directory)) {
    const int fd = std::atoi(item->d_name);
    if (item->d_name[0] != '.' && fd != ::dirfd(directory)) record('F', item->d_name);
  }
  ::closedir(directory);
}

void report_signals() {
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL || ::sigismember(&blocked, signal) == 1) {
      record('S', std::to_string(signal));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) record('A', argv[i]);
  for (char** entry = environ; *entry != nullptr; ++entry) record('E', *entry);
  char directory[PATH_MAX];
  record('C', ::getcwd(directory, sizeof directory) != nullptr ? directory : "?");
  report_descriptors();
  report_signals();
  record('P', std::to_string(::getpgrp() == ::getpid()));
  record('I', std::to_string(::getsid(0) == ::getpid()));
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  record('L', std::to_string(limit.rlim_cur));
}
