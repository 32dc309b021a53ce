// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/rank_program.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "launcher/failures/failure_code.h"
#include "launcher/machine/elf_dynamic.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// Exit codes are those of shells for "not found" and "cannot execute".
struct ProgramCheck {
  std::string_view code;
  int exit_code;
};

ProgramCheck verdict_on(SpawnStage stage, int errnum) {
  switch (stage) {
    case SpawnStage::kSearch:
      if (is_missing(errnum)) return {failure::kProgramNotFound, kExitNotFound};
      return {failure::kNotExecutable, kExitCannotExecute};
    case SpawnStage::kInterpreter:
      if (errnum == ENOENT) return {failure::kInterpreter, kExitNotFound};
      return {failure::kNotExecutable, kExitCannotExecute};
    case SpawnStage::kExecute:
      return {failure::kNotExecutable, kExitCannotExecute};
    default:
      return {failure::kNoProcess, kExitCannotExecute};
  }
}

// The loader of an executable, if that is what is missing: it may be there, and the emulator of
// another processor's programs (binfmt_misc) be what the kernel looked for.
std::optional<std::string> missing_loader(const std::string& program, int directory_fd) {
  const os::Fd file(::openat(directory_fd, program.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  auto loader = parse_elf_loader([&file](std::uint64_t offset, void* into, std::size_t size) {
    return ::pread(file.get(), into, size, static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(size);
  });
  if (loader && ::faccessat(directory_fd, loader->c_str(), F_OK, 0) == 0) return std::nullopt;
  return loader;
}

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

const ProgramSearch& ProgramTable::find(const std::string& name, std::string_view path_variable,
                                        int directory_fd) {
  // The ranks of a host may run several programs; neither word contains a null byte.
  const std::string path(path_variable);
  const std::string key = name + '\0' + path;
  auto known = searched_.find(key);
  if (known == searched_.end()) {
    known = searched_.emplace(key, search_program(name, path, directory_fd)).first;
  }
  return known->second;
}

RankExit not_started(SpawnStage stage, int errnum, std::string program) {
  const ProgramCheck verdict = verdict_on(stage, errnum);
  RankExit exit;
  exit.code = verdict.code;
  exit.exit_code = verdict.exit_code;
  exit.stage = stage;
  exit.errnum = errnum;
  exit.program = std::move(program);
  return exit;
}

RankExit not_spawned(const SpawnOutcome& outcome, const std::string& program, int directory_fd) {
  const int errnum = outcome.errnum;
  if (outcome.failed_stage != SpawnStage::kExecute) {
    return not_started(outcome.failed_stage, errnum);
  }
  // The search has found the program, so ENOENT means the interpreter of a script or the loader of
  // a binary. ENOEXEC after "#!" means that the kernel did not accept that line.
  if (errnum == ENOENT || errnum == ENOEXEC) {
    const auto loader = errnum == ENOENT ? missing_loader(program, directory_fd) : std::nullopt;
    if (loader) {
      RankExit exit = not_started(SpawnStage::kInterpreter, errnum, program);
      exit.code = failure::kLoader;
      exit.interpreter = *loader;
      return exit;
    }
    const auto interpreter = named_interpreter(program, directory_fd);
    if (errnum == ENOENT || (interpreter && interpreter->empty())) {
      RankExit exit = not_started(SpawnStage::kInterpreter, errnum, program);
      exit.interpreter = interpreter.value_or("");
      return exit;
    }
  }
  return not_started(SpawnStage::kExecute, errnum, program);
}

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
