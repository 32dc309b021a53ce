// SPDX-License-Identifier: Apache-2.0
// The inner agent's standard error is a pipe to the outer one. What comes before a NUL byte is the
// program's that runs the image, and the reason if there is no container.
#include "launcher/agent/container_host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/failures/failure_code.h"
#include "launcher/plan/container.h"
#include "launcher/process/captured_run.h"
#include "launcher/process/program_search.h"
#include "launcher/process/spawn.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostErrors = 16 * 1024;
constexpr std::size_t kMostShown = 1024;
constexpr Milliseconds kEndTimeout{5'000};  // from TERM to KILL, for one that starts no container
constexpr Milliseconds kRemovalTimeout{15'000};
constexpr char kBegun = '\0';

std::string variable(const char* name) {
  const char* const value = ::getenv(name);
  return value != nullptr ? value : "";
}

// As the mount of it needs: a link to one counts.
bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool exists(const char* path) { return ::access(path, F_OK) == 0; }

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Those that are not here are missing inside as well: the inner agent says so.
std::vector<std::string> shared_folders(const AgentOptions& options, const std::string& agent) {
  std::vector<std::string> folders;
  for (const std::string& each :
       {variable("HOME"), variable("XDG_CACHE_HOME"), variable("TMPDIR"), options.working_directory,
        options.cache_directory, options.local_bundle, folder_of(agent)}) {
    const bool is_root = each.find_first_not_of('/') == std::string::npos;
    const bool is_known = std::find(folders.begin(), folders.end(), each) != folders.end();
    if (each.starts_with("/") && !is_root && !is_known && !each.starts_with("/proc/") &&
        is_folder(each)) {
      folders.push_back(each);
    }
  }
  return folders;
}

// Not those of bash's functions, say.
bool is_plain_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::vector<std::string> shared_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (is_plain_name(name) && !is_variable_of_image(name)) names.push_back(name);
  }
  return names;
}

// What device files show: a driver without a device, or the reverse, is the runtime's to report.
ContainerHost describe_host(const AgentOptions& options, bool image_is_folder,
                            const std::string& agent) {
  ContainerHost host;
  host.uid = ::geteuid();
  host.gid = ::getegid();
  host.image_is_folder = image_is_folder;
  host.has_nvidia = exists("/dev/nvidiactl");
  for (const char* path : {"/etc/cdi/nvidia.yaml", "/etc/cdi/nvidia.json",
                           "/var/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.json"}) {
    host.has_nvidia_cdi = host.has_nvidia_cdi || exists(path);
  }
  if (exists("/dev/infiniband")) host.devices.emplace_back("/dev/infiniband");
  host.folders = shared_folders(options, agent);
  host.variables = shared_variables();
  return host;
}

// The launcher takes it for a failure of the transport: no agent has spoken before.
int report(Failure failure) {
  const std::string text = std::string(kAgentMagic) + encode_frame(fit(std::move(failure)));
  // Into an empty pipe or socket: it fits.
  (void)!::write(STDOUT_FILENO, text.data(), text.size());
  return kExitLauncher;
}

Failure container_failure(std::string message, std::string advice = {}) {
  return {std::string(failure::kContainer), std::move(message), std::move(advice)};
}

// A program and its path. Nothing: none is here that would do.
struct ChosenRuntime {
  const ContainerRuntime* runtime;
  std::string path;
};

// Whether it can make containers is seen when it tries: a look would take as long.
std::optional<ChosenRuntime> first_here(const std::vector<const ContainerRuntime*>& runtimes) {
  for (const ContainerRuntime* each : runtimes) {
    ProgramSearch found = search_program(each->program, variable("PATH"), AT_FDCWD);
    if (!found.path.empty()) return ChosenRuntime{each, std::move(found.path)};
  }
  return std::nullopt;
}

// Each host says all that it was looked for, since hosts differ.
Failure no_runtime(const std::string& image, const std::vector<const ContainerRuntime*>& runtimes) {
  std::vector<std::string> names;
  for (const ContainerRuntime* each : runtimes) names.emplace_back(each->program);
  return container_failure(
      "nothing there runs the image '" + image + "': PATH has no " + join(names, ", no "),
      "install one of them there, or leave --container out");
}

// From the program's last error on; what comes before are attempts and progress.
std::string_view reason_in(std::string_view said) {
  std::size_t begin = 0;
  for (const std::string_view word : {"\nError", "\nERROR", "\nFATAL", "\ndocker:"}) {
    const std::size_t at = said.rfind(word);
    if (at != std::string_view::npos) begin = std::max(begin, at);
  }
  said = trim(said.substr(begin));
  if (said.size() > kMostShown) said.remove_prefix(said.size() - kMostShown);
  return said;
}

// The container, from its start to its end. Single-threaded.
class Container {
 public:
  Container(ChosenRuntime found, std::string name)
      : found_(std::move(found)), name_(std::move(name)) {}

  // Its exit code. `image` is for messages.
  int run(std::vector<std::string> words, const std::string& image);

 private:
  Status start(std::vector<std::string> words);
  void wait();
  bool ended();
  void take_signals();
  void take_errors();
  void end_before_start();
  void remove() const;

  const ChosenRuntime found_;
  const std::string name_;
  os::Fd errors_, signals_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool begun_ = false;    // the inner agent runs
  bool launcher_ = true;  // its stream is open
  std::string said_;      // before that
  std::optional<Clock::time_point> kill_at_;
};

Status Container::start(std::vector<std::string> words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(errno, "making a pipe");
  errors_ = os::Fd(ends[0]);
  const os::Fd errors_write(ends[1]);
  (void)::fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
  sigset_t watched;
  ::sigemptyset(&watched);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::sigaddset(&watched, signal);
  }
  signals_ = os::Fd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return errno_error(errno, "watching signals");
  std::vector<char*> argv, variables;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // The program finds its own helpers by PATH; inside, the image's counts in any case.
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::strcspn(*entry, "="));
    if (!is_variable_of_image(name) || name == "PATH" || name == "LD_LIBRARY_PATH") {
      variables.push_back(*entry);
    }
  }
  variables.push_back(nullptr);
  SpawnRequest request;
  request.program = found_.path.c_str();
  request.argv = argv.data();
  request.envp = variables.data();
  request.stderr_fd = errors_write.get();
  const SpawnOutcome outcome = spawn(request);
  if (!outcome.ok()) return errno_error(outcome.errnum, "executing " + found_.path);
  pid_ = outcome.pid;
  return Ok{};
}

// Reaped by number: whatever else this process inherits is not waited for.
bool Container::ended() {
  const pid_t ended = ::waitpid(pid_, &status_, WNOHANG);
  return ended == pid_ || (ended < 0 && errno == ECHILD);
}

// The container's first process is the shim, to which its runtime passes them on.
void Container::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) ::kill(pid_, static_cast<int>(info.ssi_signo));
  }
}

// After the NUL they are the inner agent's and its ranks' hosts': passed on as they are.
void Container::take_errors() {
  char bytes[4096];
  ssize_t got = 0;
  while ((got = ::read(errors_.get(), bytes, sizeof bytes)) > 0) {
    std::string_view text(bytes, static_cast<std::size_t>(got));
    if (!begun_) {
      const std::size_t end = text.find(kBegun);
      begun_ = end != std::string_view::npos;
      said_ += text.substr(0, end);
      if (said_.size() > kMostErrors) said_.erase(0, said_.size() - kMostErrors);
      text.remove_prefix(begun_ ? end + 1 : text.size());
    }
    (void)!::write(STDERR_FILENO, text.data(), text.size());
  }
  if (got == 0) errors_.reset();
}

// The launcher is gone while an image is being fetched, say. An agent sees that by itself.
void Container::end_before_start() {
  if (begun_ || launcher_) return;
  if (!kill_at_) {
    kill_at_ = Clock::now() + kEndTimeout;
    ::kill(pid_, SIGTERM);
  } else if (Clock::now() >= *kill_at_) {
    ::kill(pid_, SIGKILL);
  }
}

void Container::wait() {
  constexpr int kLookAgainMs = 500;
  while (!ended()) {
    // Negative ones are skipped.
    std::array<pollfd, 3> watched{{{signals_.get(), POLLIN, 0},
                                   {errors_.valid() ? errors_.get() : -1, POLLIN, 0},
                                   {launcher_ ? STDIN_FILENO : -1, POLLRDHUP, 0}}};
    ::poll(watched.data(), watched.size(), launcher_ || begun_ ? -1 : kLookAgainMs);
    if (watched[0].revents != 0) take_signals();
    if (watched[1].revents != 0) take_errors();
    if (watched[2].revents != 0) launcher_ = false;
    end_before_start();
  }
  if (errors_.valid()) take_errors();
}

// The program has been killed, or what it left to look after the container was: then that goes on.
void Container::remove() const {
  if (found_.runtime->removal.empty()) return;
  std::vector<std::string> words(found_.runtime->removal.begin(), found_.runtime->removal.end());
  words.push_back(name_);
  (void)run_captured(words, kRemovalTimeout);
}

int Container::run(std::vector<std::string> words, const std::string& image) {
  if (Status started = start(std::move(words)); !started) {
    return report(container_failure(started.error().message));
  }
  wait();
  if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0) remove();
  if (begun_ || !launcher_) {
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : exit_code_of_signal(WTERMSIG(status_));
  }
  const std::string printed = visible(said_);
  const std::string_view said = reason_in(printed);
  return report(container_failure(
      std::string(found_.runtime->program) + " starts no container of '" + image +
          "': " + (said.empty() ? "it ended without output" : std::string(said)),
      "run the image by hand there; 'horarun explain E_CONTAINER' has what may be wrong"));
}

}  // namespace

void announce_contained() { (void)!::write(STDERR_FILENO, &kBegun, 1); }

int run_in_container(const AgentOptions& options, std::span<const char* const> words) {
  (void)::setsid();  // away from the terminal's Ctrl-C, as an agent
  const std::string& image = options.container;
  const bool is_path = is_image_path(image);
  if (is_path && !exists(image.c_str())) {
    return report(container_failure("there is no image '" + image + "'",
                                    "put it there, or name an image of a registry"));
  }
  const bool image_is_folder = is_path && is_folder(image);
  const auto runtimes = runtimes_for(image, image_is_folder, options.container_runtime);
  auto found = first_here(runtimes);
  if (!found) return report(no_runtime(image, runtimes));
  auto args = split_shell_words(options.container_args);
  if (!args) return report({std::string(failure::kUsage), args.error().message, ""});
  std::array<char, 4096> exe{};
  const ssize_t length = ::readlink("/proc/self/exe", exe.data(), exe.size());
  if (length <= 0) return report(container_failure("/proc is not mounted"));
  ContainerStart start;
  start.name = "hora-" + os::random_token();
  start.args = *std::move(args);
  start.agent = {std::string(exe.data(), static_cast<std::size_t>(length)), "agent", "--contained"};
  start.agent.insert(start.agent.end(), words.begin(), words.end());
  const ContainerHost host = describe_host(options, image_is_folder, start.agent.front());
  std::vector<std::string> command = found->runtime->start(image, host, start);
  return Container(*std::move(found), start.name).run(std::move(command), image);
}

}  // namespace hora::launcher
