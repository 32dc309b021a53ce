// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/rank_program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

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

}  // namespace hora::launcher
