// A rank that does its best to be forgotten.  wicked_rank WORD feature...
//   ignore-term  ignores TERM, INT, HUP, QUIT       setsid       a session of its own
//   double-fork  the middle process ends             close-fds    closes 0, 1, 2 and all others
//   clear-env    executes with an empty environment  stop         stops itself
//   leave        the rank itself ends at once, with code 0; else it waits to be killed
//   storm        keeps forking children that each fork one and end
// The hidden process executes "wicked_rank WORD wait", so that it is seen by its argument.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>

extern char** environ;

namespace {

std::set<std::string> features;

bool wants(const char* feature) { return features.count(feature) > 0; }

[[noreturn]] void wait_for_the_end() {
  if (wants("stop")) ::raise(SIGSTOP);
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

[[noreturn]] void hide(char* program, char* word, int until_hidden) {
  if (wants("setsid")) ::setsid();
  if (wants("double-fork") && ::fork() != 0) ::_exit(0);
  if (wants("close-fds")) ::syscall(SYS_close_range, 0u, ~0u, 0u);
  if (wants("storm")) {
    ::close(until_hidden);
    storm();
  }
  char waiting[] = "wait";
  char stop[] = "stop";
  char* argv[] = {program, word, waiting, wants("stop") ? stop : nullptr, nullptr};
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
