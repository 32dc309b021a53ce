// Everything that is equal for all ranks of a host is checked and opened once, before the first
// rank starts, so that a wrong directory or limit fails the job and not rank 37 of it.
#include "launcher/agent/prepared_job.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/agent/cpu_topology.h"
#include "launcher/agent/pmi_server.h"
#include "launcher/failures/failure_code.h"
#include "launcher/process/program_search.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
// The agent's own descriptors, and those in use while a rank starts.
constexpr rlim_t kOwnDescriptors = 48;
// The codes that shells use for "cannot execute" and "not found".
constexpr int kCannotExecute = 126;
constexpr int kNotFound = 127;

Failure failed_with(std::string_view code, std::string message, std::string advice = {}) {
  return Failure{std::string(code), std::move(message), std::move(advice)};
}

Failure no_directory(const std::string& path, const std::string& host, int errnum) {
  return failed_with(
      failure::kCwd,
      "working directory '" + path + "' on host " + host + ": " + std::strerror(errnum),
      "create it there, name another with --wdir, or send the files with --ship");
}

// Raises the agent's soft limit as far as the job needs; the ranks get the old one back, because
// programs that use select() break with a higher one.
std::variant<std::optional<unsigned long>, Failure> make_room(const HostOrder& order,
                                                              const std::string& host) {
  rlim_t needed = kOwnDescriptors;
  for (const RankOrder& rank : order.ranks) {
    needed += rank.stdin_source == StdinSource::kStream ? 3 : 2;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
    return std::optional<unsigned long>();
  }
  if (limit.rlim_max < needed) {
    return failed_with(failure::kAgent,
                       std::to_string(order.ranks.size()) + " ranks need " +
                           std::to_string(needed) + " open files on host " + host +
                           ", where the limit is " + std::to_string(limit.rlim_max),
                       "raise the limit (ulimit -Hn) or start fewer ranks there");
  }
  const std::optional<unsigned long> before = limit.rlim_cur;
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return std::optional<unsigned long>();
  return before;
}

// Both ends are close-on-exec; the agent's end does not block.
bool make_pipe(os::Fd& read_end, os::Fd& write_end, bool we_read) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end = os::Fd(ends[0]);
  write_end = os::Fd(ends[1]);
  const int ours = we_read ? ends[0] : ends[1];
  return ::fcntl(ours, F_SETFL, O_NONBLOCK | (we_read ? O_RDONLY : O_WRONLY)) == 0;
}

}  // namespace

struct PreparedJob::RankPipes {
  os::Fd stdin_read, stdin_write, stdout_read, stdout_write, stderr_read, stderr_write;
};

std::variant<PreparedJob, Failure> PreparedJob::prepare(HostOrder order, const JobPlace& place) {
  if (order.argv.empty()) return failed_with(failure::kProtocol, "the order names no command");
  for (const std::string& argument : order.argv) {
    if (argument.find('\0') != std::string::npos) {
      return failed_with(failure::kUsage, "an argument of the command holds a NUL byte");
    }
  }
  auto room = make_room(order, place.host);
  if (auto* failed = std::get_if<Failure>(&room)) return std::move(*failed);

  const std::string directory =
      order.ship_directory ? place.job_directory : order.working_directory;
  if (directory.empty() || directory.find('\0') != std::string::npos) {
    return no_directory(directory, place.host, ENOENT);
  }
  // Open the directory instead of only looking at it: all ranks then enter this one, even if its
  // name moves meanwhile.
  os::Fd working_directory(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!working_directory.valid()) return no_directory(directory, place.host, errno);
  // Opening with O_PATH needs no permission on the directory itself.
  if (::faccessat(working_directory.get(), ".", X_OK, AT_EACCESS) != 0) {
    return no_directory(directory, place.host, errno);
  }

  std::vector<Variable> own{{"HORA_JOB_ID", order.job_id}};
  const std::size_t equals = place.mark.find('=');
  // The mark is a variable that all processes of the job inherit, so strays can be found by it.
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
  RankPlacement placement = place_ranks(order, environ);
  FlightRecords records = FlightRecords::create(static_cast<int>(order.ranks.size()));
  if (!records.path().empty()) {
    own.emplace_back(rendezvous::env::kFlightRecorder, records.path());
  }
  auto environment = HostEnvironment::build(order, environ, place.bundle_root, std::move(own));
  if (!environment) {
    return failed_with(
        environment.error().code == ErrorCode::kNotFound ? failure::kCache : failure::kUsage,
        environment.error().message + " (host " + place.host + ")");
  }

  PreparedJob job(std::move(order), std::move(*environment));
  job.placement_ = std::move(placement);
  job.bundle_root_ = place.bundle_root;
  job.open_files_limit_ = std::get<std::optional<unsigned long>>(room);
  job.working_directory_ = std::move(working_directory);
  job.flight_records_ = std::move(records);
  job.null_ = os::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!job.null_.valid()) {
    return failed_with(failure::kAgent,
                       "opening /dev/null on host " + place.host + ": " + std::strerror(errno));
  }
  for (std::string& argument : job.order_.argv) job.argv_.push_back(argument.data());
  job.argv_.push_back(nullptr);
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

// Ranks may have different PATHs; most share one, so each is searched once.
Result<std::string> PreparedJob::program_for(const RankEnvironment& environment) {
  const std::string_view path = environment.find("PATH");
  const std::string key(path.empty() ? kDefaultPath : path);
  auto known = programs_.find(key);
  if (known == programs_.end()) {
    known = programs_.emplace(key, find_program(order_.argv.front(), key, working_directory_.get()))
                .first;
  }
  return known->second;
}

RankNotStarted PreparedJob::describe(const SpawnOutcome& outcome,
                                     const std::string& program) const {
  std::string text(spawn_stage_name(outcome.failed_stage));
  if (outcome.failed_stage == SpawnStage::kExecute) {
    text += " " + program;
    if (outcome.errnum == E2BIG) {
      return {text + ": the environment and the arguments are larger than this machine allows",
              kCannotExecute};
    }
    if (outcome.errnum == ENOENT) {
      // The program was found a moment ago, so its script interpreter or ELF loader is what is
      // missing.
      const auto interpreter = named_interpreter(program, working_directory_.get());
      if (!interpreter || interpreter->empty()) {
        return {text + ": its interpreter is not there", kNotFound};
      }
      text += ": its interpreter " + quote(*interpreter) + " is not there";
      if (interpreter->back() == '\r') {
        text += ": the line ends in a carriage return, as those of Windows do";
      }
      return {std::move(text), kNotFound};
    }
    if (outcome.errnum == ENOEXEC && named_interpreter(program, working_directory_.get()) == "") {
      return {text + ": its #! line names no interpreter, or is longer than the kernel reads",
              kCannotExecute};
    }
  }
  return {text + ": " + std::strerror(outcome.errnum), kCannotExecute};
}

// Starts one rank. Pipes, PMI connection and affinity belong to this call; all of them close on any
// failure.
std::variant<StartedRank, RankNotStarted> PreparedJob::start(const RankOrder& rank) {
  const RankEnvironment environment = environment_.for_rank(rank);
  const auto program = program_for(environment);
  if (!program) {
    const bool missing = program.error().code == ErrorCode::kNotFound;
    return RankNotStarted{program.error().message, missing ? kNotFound : kCannotExecute};
  }
  RankPipes pipes;
  const bool streams = rank.stdin_source == StdinSource::kStream;
  if (!make_pipe(pipes.stdout_read, pipes.stdout_write, true) ||
      !make_pipe(pipes.stderr_read, pipes.stderr_write, true) ||
      (streams && !make_pipe(pipes.stdin_read, pipes.stdin_write, false))) {
    return RankNotStarted{std::string("making a pipe: ") + std::strerror(errno), kCannotExecute};
  }
  os::Fd pmi;
  if (!pmi_socket_.empty()) {
    auto connected = connect_for_rank(pmi_socket_, rank.rank);
    if (!connected) return RankNotStarted{connected.error().message, kCannotExecute};
    pmi = std::move(*connected);
  }
  SpawnRequest request;
  request.program = program->c_str();
  request.argv = argv_.data();
  request.extra_fd = pmi.get();
  request.envp = environment.pointers.data();
  request.stdin_fd = streams ? pipes.stdin_read.get() : null_.get();
  request.stdout_fd = pipes.stdout_write.get();
  request.stderr_fd = pipes.stderr_write.get();
  request.working_directory_fd = working_directory_.get();
  request.cgroup_fd = cgroup_ ? cgroup_->fd() : -1;
  request.die_with_parent = true;
  request.open_files_limit = open_files_limit_;
  const auto& bindings = placement_.binding.cpus;
  const auto local_rank = static_cast<std::size_t>(rank.local_rank);
  // The child inherits the affinity of this thread, which gets its own back at the end of the
  // scope.
  const AffinityScope affinity(local_rank < bindings.size() ? bindings[local_rank]
                                                            : std::vector<int>());
  SpawnOutcome outcome = spawn(request);
  if (!outcome.ok() && cgroup_ &&
      (outcome.failed_stage == SpawnStage::kClone || outcome.failed_stage == SpawnStage::kCgroup)) {
    // A cgroup only adds safety, so go on without it.
    cgroup_->remove();
    cgroup_.reset();
    request.cgroup_fd = -1;
    outcome = spawn(request);
  }
  // The kernel runs no script without a "#!" line; shells run it with /bin/sh, so do the same.
  if (outcome.failed_stage == SpawnStage::kExecute && outcome.errnum == ENOEXEC &&
      is_plain_script(*program, working_directory_.get())) {
    std::vector<char*> shell_argv{const_cast<char*>("/bin/sh"),
                                  const_cast<char*>(program->c_str())};
    shell_argv.insert(shell_argv.end(), argv_.begin() + 1, argv_.end());
    request.program = "/bin/sh";
    request.argv = shell_argv.data();
    outcome = spawn(request);
  }
  if (!outcome.ok()) return describe(outcome, *program);
  StartedRank started;
  started.pid = outcome.pid;
  started.stdin_pipe = std::move(pipes.stdin_write);
  started.stdout_pipe = std::move(pipes.stdout_read);
  started.stderr_pipe = std::move(pipes.stderr_read);
  return started;
}

}  // namespace hora::launcher
