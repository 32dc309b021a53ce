// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/rank_pipes.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace hora::launcher {

namespace {

bool make_pipe(os::Fd& read_end, os::Fd& write_end, bool agent_reads) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end = os::Fd(ends[0]);
  write_end = os::Fd(ends[1]);
  // Only the agent's end: O_NONBLOCK belongs to the open file description, and programs do not
  // expect it of their standard streams.
  const int ours = agent_reads ? ends[0] : ends[1];
  return ::fcntl(ours, F_SETFL, O_NONBLOCK | (agent_reads ? O_RDONLY : O_WRONLY)) == 0;
}

// Linux before 4.13 opens it by its name alone.
os::Fd open_rank_end(int terminal) {
  constexpr int kFlags = O_RDWR | O_NOCTTY | O_CLOEXEC;
  os::Fd end(::ioctl(terminal, TIOCGPTPEER, kFlags));
  int number = 0;
  if (end.valid() || ::ioctl(terminal, TIOCGPTN, &number) != 0) return end;
  return os::Fd(::open(("/dev/pts/" + std::to_string(number)).c_str(), kFlags));
}

}  // namespace

int RankPipes::open(bool with_stdin) {
  const bool made = make_pipe(stdout_read, stdout_write, true) &&
                    make_pipe(stderr_read, stderr_write, true) &&
                    (!with_stdin || make_pipe(stdin_read, stdin_write, false));
  return made ? 0 : errno;
}

int RankPipes::open_terminal(int rows, int columns) {
  stdout_read = os::Fd(::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  const int unlocked = 0;
  if (!stdout_read.valid() || ::ioctl(stdout_read.get(), TIOCSPTLCK, &unlocked) != 0) return errno;
  stdout_write = open_rank_end(stdout_read.get());
  stdin_write = os::Fd(::fcntl(stdout_read.get(), F_DUPFD_CLOEXEC, 0));
  if (!stdout_write.valid() || !stdin_write.valid()) return errno;
  winsize size{};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  if (::ioctl(stdout_read.get(), TIOCSWINSZ, &size) != 0) return errno;
  // Backspace takes away a character, and not a byte of it.
  termios settings{};
  if (::tcgetattr(stdout_write.get(), &settings) != 0) return errno;
  settings.c_iflag |= IUTF8;
  return ::tcsetattr(stdout_write.get(), TCSANOW, &settings) == 0 ? 0 : errno;
}

}  // namespace hora::launcher
