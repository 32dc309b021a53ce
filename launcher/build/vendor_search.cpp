// SPDX-License-Identifier: Apache-2.0
// A new vendor's library is a function here that fills a VendorNeed; nothing behind it knows one.
#include "launcher/build/vendor_search.h"

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "launcher/build/known_hashes.h"
#include "launcher/build/open_mpi_part.h"
#include "launcher/failures/failure_code.h"
#include "launcher/libraries/library_search.h"
#include "launcher/plan/programs.h"
#include "launcher/process/program_search.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

std::string value_of(const EnvironmentList& environment, std::string_view name) {
  for (const auto& [each, value] : environment) {
    if (each == name) return value;
  }
  return {};
}

// Nothing is sent to this machine. Whether another name is a name of it shows only later.
bool may_have_remote_hosts(const JobSpec& spec) {
  return !spec.local_directly ||
         std::any_of(spec.hosts.begin(), spec.hosts.end(),
                     [](const Host& host) { return host.name != "localhost"; });
}

// Looking at Open MPI takes longer than anything else that precedes the first connection, so it is
// left out where nothing can be sent.
Result<VendorNeed> need_of_open_mpi(const JobSpec& spec, const EnvironmentList& environment) {
  VendorNeed need;
  need.name = "Open MPI";
  need.variable = "HORA_MPI";
  need.sonames = open_mpi_sonames();
  need.package = "Debian, Ubuntu: libopenmpi3 and libpmix2";
  const auto mode = vendor_mode(environment, need.variable);
  if (!mode) return Error(mode.error());
  need.mode = *mode;
  if (need.mode == VendorMode::kSite || !may_have_remote_hosts(spec)) {
    need.why_no_part = "it was not looked for";
    return need;
  }
  std::vector<std::string> folders = absolute_folders(library_path(spec, environment));
  for (std::string& folder : absolute_folders(program_run_path(spec, environment))) {
    folders.push_back(std::move(folder));
  }
  KnownHashes hashes(launcher_memory_folder(environment));
  auto part = collect_open_mpi(folders, hashes);
  hashes.save();
  if (part) {
    need.part = std::make_shared<const VendorPart>(std::move(*part));
  } else {
    need.why_no_part = "this machine has none: " + part.error().message;
  }
  if (need.mode == VendorMode::kShip && !need.part) {
    return make_error(ErrorCode::kUsage, need.variable + "=ship: " + need.why_no_part + " [" +
                                             std::string(failure::kLibrary) + "]");
  }
  return need;
}

// Compilers of MPI write the folder of their MPI into the programs that they make.
std::string run_path_of(const std::string& name, const JobSpec& spec,
                        const EnvironmentList& environment) {
  const os::Fd directory(::open(spec.working_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto path = find_program(name, value_of(environment, "PATH"), directory.get());
  if (!path) return {};
  // $ORIGIN in a run path is the program's folder here. Where hosts have the program elsewhere,
  // what their ranks find there is not seen, and they are sent what they may not need.
  const std::string absolute = path->front() == '/' ? *path : spec.working_directory + "/" + *path;
  const auto program = LibrarySearch({}).open(absolute);
  if (!program) return {};
  return join(run_path_folders(program->elf.run_path, absolute), ":");
}

}  // namespace

Result<std::vector<VendorNeed>> vendor_needs_of(const JobSpec& spec,
                                                const EnvironmentList& environment) {
  std::vector<VendorNeed> needs;
  if (spec.runtime == RuntimeKind::kHora && spec.pmi == "pmix") {
    auto need = need_of_open_mpi(spec, environment);
    if (!need) return std::move(need).error();
    needs.push_back(std::move(*need));
  }
  return needs;
}

std::string library_path(const JobSpec& spec, const EnvironmentList& environment) {
  // Options may set it as well (-x).
  return value_of(forwarded_environment(environment, spec, false), "LD_LIBRARY_PATH");
}

// Several programs of a job are looked at as one: what any of them would find counts.
std::string program_run_path(const JobSpec& spec, const EnvironmentList& environment) {
  std::vector<std::string> paths;
  for (const auto& command : commands_of(spec)) {
    if (command.empty()) continue;
    std::string path = run_path_of(command.front(), spec, environment);
    if (!path.empty() && std::find(paths.begin(), paths.end(), path) == paths.end()) {
      paths.push_back(std::move(path));
    }
  }
  return join(paths, ":");
}

}  // namespace hora::launcher
