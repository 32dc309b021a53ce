// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/vendor_search.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/machine/library_search.h"
#include "launcher/parts/hashes.h"
#include "launcher/parts/part_rules.h"
#include "launcher/parts/vendor_parts.h"
#include "launcher/plan/plan.h"
#include "launcher/process/program_search.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

// The answer ends with this byte, so half an answer is not mistaken for a whole one.
constexpr char kComplete = '\n';

[[noreturn]] void run_child(const std::function<std::string()>& work, int out) {
  const std::string answer = work() + kComplete;
  std::size_t written = 0;
  while (written < answer.size()) {
    const ssize_t count = ::write(out, answer.data() + written, answer.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ::_exit(kExitFailed);
    written += static_cast<std::size_t>(count);
  }
  // Not exit(): libraries that were loaded may crash in their destructors.
  ::_exit(kExitOk);
}

// Reads to the end of the pipe. Returns false at the deadline.
bool read_answer(int in, Clock::time_point deadline, std::string& answer) {
  std::array<char, 4096> chunk{};
  for (;;) {
    const int left_ms = os::milliseconds_until(deadline);
    if (left_ms == 0) return false;
    pollfd item{in, POLLIN, 0};
    if (::poll(&item, 1, left_ms) <= 0) continue;
    const ssize_t count = ::read(in, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    answer.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

Error died(int status) {
  if (WIFSIGNALED(status)) {
    return make_error(ErrorCode::kFailed,
                      "it crashes when it is loaded (" + signal_name(WTERMSIG(status)) + ")");
  }
  return make_error(ErrorCode::kFailed, "it ends the process when it is loaded (exit code " +
                                            std::to_string(WEXITSTATUS(status)) + ")");
}

// The child's own program: nothing stands between it and the signal that ends it at the deadline.
// Of a process with threads a child may not even allocate memory.
[[noreturn]] void become_program(char* const* argv, int out) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDERR_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::execvp(argv[0], argv);
  ::_exit(kExitFailed);
}

Result<std::string> run_in_child(const std::function<void(int out)>& child_main,
                                 std::chrono::milliseconds limit) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "creating a pipe");
  os::Fd in(ends[0]);
  os::Fd out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return errno_error(errno, "starting a process");
  if (child == 0) child_main(out.get());

  // Close our copy of the write end, or the pipe would never end.
  out.reset();
  std::string answer;
  const bool in_time = read_answer(in.get(), Clock::now() + limit, answer);
  // A child that hangs in a library does not react to anything else.
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    return make_error(ErrorCode::kTimedOut, "it does not load within " +
                                                std::to_string(limit.count() / 1000) + " seconds");
  }
  if (answer.empty() || answer.back() != kComplete) return died(status);
  answer.pop_back();
  return answer;
}

}  // namespace

Result<std::string> run_isolated(const std::function<std::string()>& work,
                                 std::chrono::milliseconds limit) {
  return run_in_child([&](int out) { run_child(work, out); }, limit);
}

Result<std::string> run_isolated_program(const std::vector<std::string>& words,
                                         std::chrono::milliseconds limit) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return run_in_child([&argv](int out) { become_program(argv.data(), out); }, limit);
}

// Looks for vendor libraries as the runtime does, and asks each one for its version through its own
// function.

namespace {

// NCCL and CUDA report one number: 22809 is 2.28.9, 13000 is 13.0.
std::string nccl_version(void* function) {
  int number = 0;
  if (reinterpret_cast<int (*)(int*)>(function)(&number) != 0) return {};
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

std::string cuda_version(void* function) {
  int number = 0;
  if (reinterpret_cast<int (*)(int*)>(function)(&number) != 0) return {};
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Parses "Open MPI v4.1.4, package: ..."; MPI allows this call before MPI_Init.
std::string mpi_version(void* function) {
  // Large enough for MPI_MAX_LIBRARY_VERSION_STRING of every implementation.
  std::array<char, 8192> text{};
  int length = 0;
  if (reinterpret_cast<int (*)(char*, int*)>(function)(text.data(), &length) != 0) return {};
  const std::string all = text.data();
  return all.substr(0, all.find_first_of(",\n"));
}

// Parses "OpenPMIx 4.2.2rc2 (...)".
std::string pmix_version(void* function) {
  const char* text = reinterpret_cast<const char* (*)()>(function)();
  const std::string all = text == nullptr ? "" : text;
  const auto end = all.find_first_of(",(");
  std::string out = all.substr(0, end);
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// Parses "0.10.6/openssl/zlib".
std::string ssh_version(void* function) {
  const char* text = reinterpret_cast<const char* (*)(int)>(function)(0);
  const std::string all = text == nullptr ? "" : text;
  return all.substr(0, all.find('/'));
}

struct Recipe {
  std::string_view feature;
  std::vector<const char*> names;
  const char* version_symbol;
  std::string (*version)(void* function);
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"SSH", {"libssh.so.4"}, "ssh_version", ssh_version},
      {"GLOO", {"libgloo.so.0", "libgloo.so"}, nullptr, nullptr},
      {"MPI",
       {"libmpi.so.40", "libmpi.so.12", "libmpi.so"},
       "MPI_Get_library_version",
       mpi_version},
      {"CUDA", {"libcuda.so.1"}, "cuDriverGetVersion", cuda_version},
      {"NCCL", {"libnccl.so.2", "libnccl.so"}, "ncclGetVersion", nccl_version},
      {"PMIX", {"libpmix.so.2"}, "PMIx_Get_version", pmix_version},
  };
  return all;
}

// dlopen() searches several places; the link map shows which file it found.
std::string file_of(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return os::real_path(map->l_name);
}

// The bundle comes first, then the system, then where the build found it.
std::vector<std::string> places(const Recipe& recipe, const std::vector<std::string>& folders,
                                const std::string& built_location) {
  std::vector<std::string> out;
  for (const std::string& folder : folders) {
    for (const char* name : recipe.names) out.push_back(folder + "/" + name);
  }
  for (const char* name : recipe.names) out.emplace_back(name);
  if (built_location.find(".so") != std::string::npos) out.push_back(built_location);
  return out;
}

}  // namespace

VendorLibrary find_vendor_library(std::string_view feature, const std::vector<std::string>& folders,
                                  const std::string& built_location) {
  VendorLibrary found;
  for (const Recipe& recipe : recipes()) {
    if (recipe.feature != feature) continue;
    for (const std::string& place : places(recipe, folders, built_location)) {
      void* library = dlopen(place.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (library == nullptr) {
        const char* text = dlerror();
        found.error = text == nullptr ? "unknown reason" : text;
        continue;
      }
      found.path = file_of(library);
      found.error.clear();
      void* symbol = recipe.version_symbol ? dlsym(library, recipe.version_symbol) : nullptr;
      if (symbol != nullptr) found.version = recipe.version(symbol);
      return found;
    }
  }
  return found;
}

// A new vendor's library is a function here that fills a VendorNeed; the rest of the code does not
// know the vendors.

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

// The files to be sent, from `collect`; if none can be sent, it does not even look for them.
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
