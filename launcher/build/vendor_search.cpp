// SPDX-License-Identifier: Apache-2.0
// A new vendor's library is a function here that fills a VendorNeed; nothing behind it knows one.
#include "launcher/build/vendor_search.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "launcher/build/known_hashes.h"
#include "launcher/build/nccl_part.h"
#include "launcher/build/open_mpi_part.h"
#include "launcher/build/part_rules.h"
#include "launcher/failures/failure_code.h"
#include "launcher/libraries/library_search.h"
#include "launcher/libraries/program_folders.h"
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

void append(std::vector<std::string>& folders, std::vector<std::string> more) {
  folders.insert(folders.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

// In the loader's order.
std::vector<std::string> loader_folders(const JobSpec& spec, const EnvironmentList& environment) {
  std::vector<std::string> folders = absolute_folders(library_path(spec, environment));
  append(folders, absolute_folders(program_run_path(spec, environment)));
  return folders;
}

// The values that a variable has for the ranks, each once: options may set it (-x), and for each of
// several programs. Those are looked at as one: what any of them would find counts.
std::vector<std::string> values_for_ranks(const JobSpec& spec, const EnvironmentList& environment,
                                          std::string_view name) {
  std::vector<std::string> values{value_of(forwarded_environment(environment, spec, false), name)};
  for (const Program& program : spec.programs) {
    for (const EnvironmentVariable& variable : program.variables) {
      const bool is_known = std::find(values.begin(), values.end(), variable.value) != values.end();
      if (variable.name == name && !is_known) values.push_back(variable.value);
    }
  }
  std::erase(values, "");
  return values;
}

// The programs of the job as this machine has them; without those that it has not, or not by an
// absolute path.
std::vector<std::string> own_programs(const JobSpec& spec, const EnvironmentList& environment) {
  const os::Fd directory(::open(spec.working_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::vector<std::string> programs;
  for (const auto& command : commands_of(spec)) {
    if (command.empty()) continue;
    const auto path = find_program(command.front(), value_of(environment, "PATH"), directory.get());
    if (!path) continue;
    std::string program = path->front() == '/' ? *path : spec.working_directory + "/" + *path;
    if (std::find(programs.begin(), programs.end(), program) == programs.end()) {
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

// What is to be sent, by `collect`; where nothing can be, it is not even looked for.
Result<VendorNeed> complete(VendorNeed need, const JobSpec& spec,
                            const EnvironmentList& environment,
                            const std::function<Result<VendorPart>(KnownHashes&)>& collect) {
  const auto mode = vendor_mode(environment, need.variable);
  if (!mode) return Error(mode.error());
  need.mode = *mode;
  if (need.mode == VendorMode::kSite || !may_have_remote_hosts(spec)) {
    need.why_no_part = "it was not looked for";
    return need;
  }
  KnownHashes hashes(launcher_memory_folder(environment));
  auto part = collect(hashes);
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

Result<VendorNeed> need_of_open_mpi(const JobSpec& spec, const EnvironmentList& environment) {
  VendorNeed need;
  need.name = "Open MPI";
  need.variable = "HORA_MPI";
  need.sonames = open_mpi_sonames();
  need.package = "Debian, Ubuntu: libopenmpi3 and libpmix2";
  return complete(std::move(need), spec, environment, [&](KnownHashes& hashes) {
    return collect_open_mpi(loader_folders(spec, environment), hashes);
  });
}

// Every job may be one that trains on GPUs, and only its hosts know whether they have any. Without
// NCCL their tensors go through host memory.
Result<VendorNeed> need_of_nccl(const JobSpec& spec, const EnvironmentList& environment) {
  VendorNeed need;
  need.name = "NCCL";
  need.variable = "HORA_NCCL";
  need.sonames = {kNcclSoname};
  need.with = {kCudaDriverSoname};
  need.with_gpu = shipping_for_job("nccl", spec, environment) == Shipping::kToGpus;
  need.for_part = "nccl";
  need.is_optional = true;
  need.package = "NVIDIA's libnccl2, or the wheel nvidia-nccl-cu12";
  return complete(std::move(need), spec, environment, [&](KnownHashes& hashes) {
    const auto found = find_nccl(nccl_folders(spec, environment));
    return found ? collect_nccl(*found, hashes) : Result<VendorPart>(found.error());
  });
}

// PyTorch's own, which travels with it.
bool environment_brings_nccl(const JobSpec& spec) {
  if (spec.ship_environment.empty()) return false;
  const auto folders = wheel_folders(spec.ship_environment + "/bin/python");
  return std::any_of(folders.begin(), folders.end(), [](const std::string& folder) {
    return ::access((folder + "/" + kNcclSoname).c_str(), F_OK) == 0;
  });
}

}  // namespace

Result<std::vector<VendorNeed>> vendor_needs_of(const JobSpec& spec,
                                                const EnvironmentList& environment,
                                                OptionalNeeds optional) {
  std::vector<VendorNeed> needs;
  if (spec.runtime == RuntimeKind::kHora && spec.pmi == "pmix") {
    auto need = need_of_open_mpi(spec, environment);
    if (!need) return std::move(need).error();
    needs.push_back(std::move(*need));
  }
  // mpirun starts the ranks in an environment of its own. A user who names a library wants no
  // other.
  const bool named = !value_of(environment, "HORA_NCCL").empty();
  const bool may_help = optional == OptionalNeeds::kAll && !environment_brings_nccl(spec);
  if ((named || may_help) && spec.runtime == RuntimeKind::kHora && !spec.by_mpirun &&
      may_use_nccl(spec, environment) &&
      values_for_ranks(spec, environment, "HORA_NCCL_LIBRARY").empty()) {
    auto need = need_of_nccl(spec, environment);
    if (!need) return std::move(need).error();
    needs.push_back(std::move(*need));
  }
  return needs;
}

std::string library_path(const JobSpec& spec, const EnvironmentList& environment) {
  return join(values_for_ranks(spec, environment, "LD_LIBRARY_PATH"), ":");
}

// Compilers of MPI write the folder of their MPI into the programs that they make. $ORIGIN in a run
// path is the program's folder here. Where hosts have the program elsewhere, what their ranks find
// there is seen by their agents alone.
// Of packages that PYTHONPATH names, as hosts may have them, the folder of NVIDIA's wheel counts
// like one of a run path.
std::string program_run_path(const JobSpec& spec, const EnvironmentList& environment) {
  std::vector<std::string> folders;
  for (const std::string& program : own_programs(spec, environment)) {
    append(folders, program_folders(program));
  }
  const auto paths = values_for_ranks(spec, environment, "PYTHONPATH");
  for (const std::string& packages : absolute_folders(join(paths, ":"))) {
    folders.push_back(packages + "/nvidia/nccl/lib");
  }
  return join(folders, ":");
}

// Like an agent looks on its host, so that what frameworks here use can be sent, too.
std::vector<std::string> nccl_folders(const JobSpec& spec, const EnvironmentList& environment) {
  std::vector<std::string> folders = loader_folders(spec, environment);
  for (const std::string& program : own_programs(spec, environment)) {
    append(folders, wheel_folders(program));
  }
  if (const auto python = find_program("python3", value_of(environment, "PATH"), AT_FDCWD)) {
    append(folders, wheel_folders(*python));
  }
  if (const std::string home = value_of(environment, "HOME"); !home.empty()) {
    append(folders, wheel_folders(home + "/.local/bin/python3"));
  }
  return folders;
}

}  // namespace hora::launcher
