// SPDX-License-Identifier: Apache-2.0
// Everything that is equal for all ranks of a host is checked and opened once, before the first
// rank starts, so that a wrong directory or limit fails the job and not rank 37 of it.
#include "launcher/agent/prepared_job.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "launcher/agent/host_capacity.h"
#include "launcher/agent/pmi_server.h"
#include "launcher/failures/failure_code.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
// The agent's own descriptors, and those in use while ranks start: the other ends of three pipes,
// and a connection to the PMI server.
constexpr rlim_t kOwnDescriptors = 48 + 4 * PreparedJob::kMostStarting;
// Fewer ranks than these need no look at the limits of processes: it would only make the start of
// every small job longer, and a rank that cannot be started says so as well.
constexpr std::size_t kManyRanks = 64;

Failure failed_with(std::string_view code, std::string message, std::string advice = {}) {
  return Failure{std::string(code), std::move(message), std::move(advice)};
}

std::optional<Failure> check_command(const std::vector<std::string>& argv) {
  if (argv.empty()) return failed_with(failure::kProtocol, "the order names no command");
  for (const std::string& argument : argv) {
    if (argument.find('\0') != std::string::npos) {
      return failed_with(failure::kUsage, "an argument of the command contains a NUL byte");
    }
  }
  return std::nullopt;
}

// As execve() takes it: pointers into the words, which must not move.
std::vector<char*> pointers_to(std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct DescriptorLimits {
  std::optional<unsigned long> limit_before;  // for the ranks, where it was raised
  bool for_ranks_ends = false;                // of their output: StartedRank::stdout_write
};

// Raises the agent's soft limit as far as the job needs; the ranks get the old one back, because
// programs that use select() break with a higher one.
std::variant<DescriptorLimits, Failure> make_room(const HostOrder& order) {
  if (order.ranks.size() >= kManyRanks) {
    if (const auto lack = find_lack(order.ranks.size(), read_host_room())) {
      return failed_with(failure::kUsage, lack->message, lack->advice);
    }
  }
  rlim_t needed = kOwnDescriptors;
  for (const RankOrder& rank : order.ranks) {
    needed += rank.stdin_source == StdinSource::kNull ? 2 : 3;
  }
  const rlim_t wanted = needed + 2 * order.ranks.size();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return DescriptorLimits{};
  if (limit.rlim_cur >= wanted) return DescriptorLimits{std::nullopt, true};
  if (limit.rlim_max < needed) {
    return failed_with(failure::kUsage,
                       counted(order.ranks.size(), "rank") +
                           (order.ranks.size() == 1 ? " needs " : " need ") +
                           std::to_string(needed) + " open files, and the limit is " +
                           std::to_string(limit.rlim_max),
                       "raise the limit there (ulimit -Hn), or start fewer ranks on this host");
  }
  DescriptorLimits room{limit.rlim_cur, limit.rlim_max >= wanted};
  if (!room.for_ranks_ends && limit.rlim_cur >= needed) return DescriptorLimits{};
  limit.rlim_cur = room.for_ranks_ends ? wanted : needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return DescriptorLimits{};
  return room;
}

// Opens the directory instead of only looking at it: all ranks then enter this one, even if its
// name moves meanwhile.
std::variant<os::Fd, Failure> open_directory(const std::string& path) {
  const auto refused = [&path](int errnum) {
    return failed_with(failure::kCwd, "working directory '" + path + "': " + std::strerror(errnum),
                       "create it there, name another with --wdir, or send the files with --ship");
  };
  if (path.empty() || path.find('\0') != std::string::npos) return refused(ENOENT);
  os::Fd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return refused(errno);
  // Opening with O_PATH needs no permission on the directory itself.
  if (const int errnum = os::check_executable(directory.get(), "."); errnum != 0) {
    return refused(errnum);
  }
  return directory;
}

// A link of /proc (the directory of a container's own process) cannot serve as a name.
std::string name_of(const os::Fd& directory, const std::string& path) {
  if (!path.starts_with("/proc/")) return path;
  char name[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(directory.get());
  const ssize_t length = ::readlink(link.c_str(), name, sizeof name);
  return length > 0 ? std::string(name, static_cast<std::size_t>(length)) : path;
}

// When ranks outnumber the CPUs, they yield to each other while they wait. Where each session is a
// scheduling group (kernel.sched_autogroup_enabled), that needs one session, which only a common
// ancestor can give them: this process leads it, so that it has no terminal. Otherwise each has its
// own session, and so a larger share next to other programs.
bool lead_session_of(std::size_t ranks) {
  const std::size_t cpus = count_cpus(cpu_mask_of_this_thread());
  if (cpus == 0 || ranks <= cpus) return false;
  return ::setsid() > 0 || ::getsid(0) == ::getpid();
}

// The agent's additions to the environment of every rank.
std::vector<Variable> agent_variables(const HostOrder& order, const JobPlace& place,
                                      const std::string& directory, const FlightRecords& records) {
  std::vector<Variable> own{{"HORA_JOB_ID", order.job_id}};
  // The mark is a variable that all processes of the job inherit, so strays can be found by it.
  const std::size_t equals = place.mark.find('=');
  if (equals != std::string::npos) {
    own.emplace_back(place.mark.substr(0, equals), place.mark.substr(equals + 1));
  }
  if (!place.job_directory.empty()) own.emplace_back("HORA_JOB_DIRECTORY", place.job_directory);
  if (!place.stacks_place.empty()) {
    own.emplace_back("HORA_STACKS", place.stacks_place);
    own.emplace_back("HORA_STACKS_SIGNAL", std::to_string(place.stacks_signal));
  }
  // Programs trust PWD, so it must be right.
  own.emplace_back("PWD", directory);
  if (!records.path().empty()) {
    own.emplace_back(rendezvous::env::kFlightRecorder, records.path());
  }
  return own;
}

}  // namespace

std::variant<PreparedJob, Failure> PreparedJob::prepare(HostOrder order, const JobPlace& place) {
  if (auto failed = check_command(order.argv)) return std::move(*failed);
  for (const ProgramOrder& program : order.more_programs) {
    if (auto failed = check_command(program.argv)) return std::move(*failed);
  }
  auto room = make_room(order);
  if (auto* failed = std::get_if<Failure>(&room)) return std::move(*failed);
  const std::string directory =
      order.ship_directory ? place.job_directory : order.working_directory;
  auto working_directory = open_directory(directory);
  if (auto* failed = std::get_if<Failure>(&working_directory)) return std::move(*failed);
  const std::string shown = name_of(std::get<os::Fd>(working_directory), directory);

  // The kernel's answer is that of this moment; a cpuset that shrinks later moves the ranks.
  auto placement = place_ranks(order, environ);
  if (!placement) {
    const bool lacks_gpus = placement.error().code == ErrorCode::kNotFound;
    return failed_with(lacks_gpus ? failure::kUsage : failure::kBind, placement.error().message);
  }
  std::vector<int> ranks;
  for (const RankOrder& each : order.ranks) ranks.push_back(each.rank);
  FlightRecords records = FlightRecords::create(std::move(ranks));
  auto environment =
      HostEnvironment::build(order, environ, {place.bundle_root, place.environment_root},
                             agent_variables(order, place, shown, records));
  if (!environment) {
    return failed_with(
        environment.error().code == ErrorCode::kNotFound ? failure::kCache : failure::kUsage,
        environment.error().message);
  }
  PreparedJob job(std::move(order), std::move(*environment));
  job.placement_ = std::move(*placement);
  job.bundle_root_ = place.bundle_root;
  job.cpus_ = place.cpus;
  job.one_session_ = lead_session_of(job.order_.ranks.size());
  job.open_files_limit_ = std::get<DescriptorLimits>(room).limit_before;
  job.keeps_ends_ = std::get<DescriptorLimits>(room).for_ranks_ends;
  job.working_directory_ = std::move(std::get<os::Fd>(working_directory));
  job.flight_records_ = std::move(records);
  job.null_ = os::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!job.null_.valid()) {
    return failed_with(failure::kAgent, std::string("opening /dev/null: ") + std::strerror(errno));
  }
  job.argvs_.push_back(pointers_to(job.order_.argv));
  for (ProgramOrder& program : job.order_.more_programs) {
    job.argvs_.push_back(pointers_to(program.argv));
  }
  job.cgroup_ = JobCgroup::create(place.cgroup_word);
  return job;
}

void PreparedJob::use_pmi(const PmiReply& reply) {
  pmi_socket_ = reply.socket;
  for (RankOrder& order : order_.ranks) {
    for (const auto& [rank, variables] : reply.environment) {
      if (rank != order.rank) continue;
      order.environment.insert(order.environment.end(), variables.begin(), variables.end());
    }
    // spawn() puts the extra descriptor there.
    if (!pmi_socket_.empty()) order.environment.emplace_back("PMI_FD", "3");
  }
}

// The order has the programs by their first ranks, which grow.
std::vector<char*>& PreparedJob::argv_of(int rank) {
  const auto& others = order_.more_programs;
  std::size_t program = 0;
  while (program < others.size() && others[program].first_rank <= rank) ++program;
  return argvs_[program];
}

// All that belongs to the start of one rank is in StartingRank, and closes with it on any failure.
std::variant<std::unique_ptr<StartingRank>, RankExit> PreparedJob::begin_start(
    const RankOrder& rank) {
  auto starting = std::make_unique<StartingRank>(environment_.for_rank(rank));
  const std::string_view path = starting->environment.find("PATH");
  std::vector<char*>& argv = argv_of(rank.rank);
  const ProgramSearch& program =
      programs_.find(argv.front(), path.empty() ? kDefaultPath : path, working_directory_.get());
  if (program.path.empty()) {
    return not_started(SpawnStage::kSearch, program.errnum, argv.front());
  }
  starting->program = program.path;
  RankPipes& pipes = starting->pipes;
  const bool streams = rank.stdin_source == StdinSource::kStream;
  const bool is_terminal = rank.stdin_source == StdinSource::kTerminal;
  const int errnum =
      is_terminal ? pipes.open_terminal(rank.rows, rank.columns) : pipes.open(streams);
  if (errnum != 0) {
    return not_started(is_terminal ? SpawnStage::kTerminal : SpawnStage::kPipes, errnum);
  }
  if (!pmi_socket_.empty()) {
    starting->pmi = connect_for_rank(pmi_socket_, rank.rank);
    if (!starting->pmi.valid()) return not_started(SpawnStage::kPmi, errno);
  }
  SpawnRequest& request = starting->request;
  request.program = starting->program.c_str();
  request.argv = argv.data();
  request.extra_fd = starting->pmi.get();
  request.envp = starting->environment.pointers.data();
  request.stdin_fd = streams ? pipes.stdin_read.get() : null_.get();
  request.stdout_fd = pipes.stdout_write.get();
  request.stderr_fd = pipes.stderr_write.get();
  if (is_terminal) request.stdin_fd = request.stderr_fd = request.stdout_fd;
  request.takes_terminal = is_terminal;
  request.working_directory_fd = working_directory_.get();
  request.die_with_parent = true;
  request.new_session = !one_session_ || is_terminal;
  request.new_group = !request.new_session;
  request.resets_signals = false;  // the agent has done so for itself
  request.open_files_limit = open_files_limit_;
  request.cgroup_fd = cgroup_ ? cgroup_->fd() : -1;
  const auto& bindings = placement_.binding.cpus;
  const auto local_rank = static_cast<std::size_t>(rank.local_rank);
  const std::vector<int> own =
      local_rank < bindings.size() ? bindings[local_rank] : std::vector<int>();
  if (own.empty() && !cpus_.empty()) request.cpus = &cpus_;
  // The child inherits the affinity of this thread, which gets its own back at the end of the
  // scope.
  const AffinityScope affinity(own);
  starting->spawning.emplace(request);
  return starting;
}

std::variant<StartedRank, RankExit> PreparedJob::finish_start(StartingRank& rank) {
  const SpawnOutcome outcome = finish_spawn(rank);
  if (!outcome.ok()) return not_spawned(outcome, rank.program, working_directory_.get());
  StartedRank started;
  started.pid = outcome.pid;
  started.stdin_pipe = std::move(rank.pipes.stdin_write);
  started.stdout_pipe = std::move(rank.pipes.stdout_read);
  started.stderr_pipe = std::move(rank.pipes.stderr_read);
  if (keeps_ends_) {
    started.stdout_write = std::move(rank.pipes.stdout_write);
    started.stderr_write = std::move(rank.pipes.stderr_write);
  }
  return started;
}

// Two failures are worth a second attempt: of the cgroup, and of a script without "#!".
SpawnOutcome PreparedJob::finish_spawn(StartingRank& rank) {
  SpawnRequest& request = rank.request;
  SpawnOutcome outcome = rank.spawning->finish();
  if (!outcome.ok() && request.cgroup_fd >= 0 &&
      (outcome.failed_stage == SpawnStage::kClone || outcome.failed_stage == SpawnStage::kCgroup)) {
    // A cgroup only adds safety, so go on without it.
    if (cgroup_) cgroup_->remove();
    cgroup_.reset();
    request.cgroup_fd = -1;
    outcome = spawn(request);
  }
  // The kernel runs no script without a "#!" line; shells run it with /bin/sh, so do the same.
  if (outcome.failed_stage == SpawnStage::kExecute && outcome.errnum == ENOEXEC &&
      is_plain_script(request.program, working_directory_.get())) {
    std::vector<char*> shell_argv{const_cast<char*>("/bin/sh"), const_cast<char*>(request.program)};
    // The program's own words follow its name, up to the null pointer.
    for (char* const* word = request.argv; *word != nullptr;) shell_argv.push_back(*++word);
    request.program = "/bin/sh";
    request.argv = shell_argv.data();
    outcome = spawn(request);
  }
  return outcome;
}

}  // namespace hora::launcher
