// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_targets.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "launcher/plan/worker_environment.h"
#include "launcher/process/captured_run.h"
#include "launcher/process/program_search.h"
#include "launcher/transports/libssh_types.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

using FileKind = SshMachine::FileKind;

FileKind kind_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return FileKind::kNone;
  if (S_ISDIR(status.st_mode)) return FileKind::kDirectory;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) ? FileKind::kPipe : FileKind::kFile;
}

// A socket of a dead ssh refuses the connection.
bool listens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const os::Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe.valid() &&
         ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

std::optional<std::string> variable(const std::string& name) {
  const char* value = ::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// klist knows, wherever tickets are. Without it, whether anything here uses Kerberos.
bool may_have_ticket() {
  constexpr Milliseconds kPatience{2'000};
  static const bool answer = [] {
    const std::string path = variable("PATH").value_or("/usr/bin:/bin");
    if (!search_program("klist", path, AT_FDCWD).path.empty()) {
      const auto run = run_captured({"klist", "-s"}, kPatience);
      return !run || run->exit_code == 0;
    }
    return variable("KRB5CCNAME").has_value() || kind_of("/etc/krb5.conf") != FileKind::kNone;
  }();
  return answer;
}

// Like ssh, take home and name from the password database, whatever $HOME and $USER say.
SshMachine this_machine() {
  SshMachine machine;
  // A buffer of this size holds local accounts; with a larger record the environment decides.
  char buffer[16 * 1024];
  passwd record{};
  passwd* found = nullptr;
  machine.home = variable("HOME").value_or("");
  machine.local_user = variable("USER").value_or("");
  if (::getpwuid_r(::getuid(), &record, buffer, sizeof buffer, &found) == 0 && found != nullptr) {
    machine.home = record.pw_dir;
    machine.local_user = record.pw_name;
  }
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  machine.host_name = name.data();
  machine.shell = variable("SHELL").value_or("");
  if (machine.shell.empty()) machine.shell = "/bin/sh";
  machine.uid = ::getuid();
  machine.kind_of = kind_of;
  machine.listens = listens;
  machine.variable = variable;
  machine.may_have_ticket = may_have_ticket;
  return machine;
}

}  // namespace

// No answers where a named file is missing: check() is what the first host gets to see.
SshTargets::SshTargets(SshOptions options)
    : options_(std::move(options)), machine_(this_machine()) {
  program_ = search_program("ssh", variable("PATH").value_or("/usr/bin:/bin"), AT_FDCWD).path;
  if (program_.empty() || !check()) return;
  answers_ = std::make_unique<SshAnswers>(program_, options_, machine_,
                                          launcher_memory_folder(split_environment(environ)));
}

SshTargets::~SshTargets() {
  if (answers_) answers_->save();
}

// A file that the user named and that is not there is an error before any host is contacted. One
// without an end would be read for ever, a pipe would be empty for the second host.
Status SshTargets::check() const {
  for (const auto& [what, path] : {std::pair{"ssh config", options_.config_file},
                                   std::pair{"identity file", options_.identity_file}}) {
    if (path.empty()) continue;
    struct stat status {};
    const bool is_there = ::stat(path.c_str(), &status) == 0;
    if ((is_there && S_ISREG(status.st_mode)) || path == "/dev/null") continue;
    return missing_file(what, path, is_there ? FileKind::kPipe : FileKind::kNone);
  }
  return Ok{};
}

std::vector<std::string> SshTargets::program_command() {
  if (!answers_) return {};
  std::vector<std::string> command{program_, "-T", "-o", "ControlMaster=no"};
  for (std::string& word : ssh_arguments(options_)) command.push_back(std::move(word));
  // These would take the agent's input away; older versions do not know them.
  if (answers_->defaults().count("stdinnull") != 0) {
    command.insert(command.end(), {"-o", "StdinNull=no", "-o", "ForkAfterAuthentication=no"});
  }
  return command;
}

Result<SshTarget> SshTargets::target_of(const Host& host) {
  HORA_TRY(check());
  if (machine_.local_user.empty() && host.user.empty()) {
    return make_error(ErrorCode::kNotFound,
                      "uid " + std::to_string(machine_.uid) +
                          " has no user name in the password database; give the user: -H user@" +
                          host.name);
  }
  // Another program by that name (Dropbear's) does not know -G.
  if (!answers_ || answers_->defaults().count("hostname") == 0) return by_libssh(host);
  auto settings = answers_->of(host);
  if (!settings) return std::move(settings).error();
  return resolve_ssh_target(host, options_, *settings, answers_->defaults(), machine_);
}

// libssh's own parser knows fewer keywords than OpenSSH. Its messages about the others are passed
// on.
Status SshTargets::read_by_libssh(ssh_session_struct* session, const Host& host) {
  const LibsshModule& library = libssh();
  std::set<std::string> words;
  (void)library.ssh_set_log_callback([](int, const char*, const char* text, void* to) {
    static_cast<std::set<std::string>*>(to)->insert(text);
  });
  (void)library.ssh_set_log_userdata(&words);
  (void)library.ssh_set_log_level(SSH_LOG_TRACE);
  (void)library.ssh_options_set(session, SSH_OPTIONS_SSH_DIR, (machine_.home + "/.ssh").c_str());
  (void)library.ssh_options_set(session, SSH_OPTIONS_HOST, host.name.c_str());
  const char* file = options_.config_file.empty() ? nullptr : options_.config_file.c_str();
  const bool read = library.ssh_options_parse_config(session, file) == SSH_OK;
  (void)library.ssh_set_log_level(SSH_LOG_NONE);
  (void)library.ssh_set_log_callback(nullptr);
  if (!read) {
    return make_error(ErrorCode::kUsage, std::string("libssh: ") + library.ssh_get_error(session));
  }
  const std::lock_guard lock(mutex_);
  for (const std::string& each : words) {
    // A list that libssh cannot apply would leave what it removes in use.
    if (each.find("no allowed algorithm") != std::string::npos) {
      return make_error(ErrorCode::kUsage, "the ssh configuration: " + visible_line(each));
    }
    if (each.find(" option: ") == std::string::npos || !warnings_.insert(each).second) continue;
    os::log_warn("ssh config", visible_line(each));
  }
  return Ok{};
}

// For machines that have no OpenSSH client, such as small containers.
Result<SshTarget> SshTargets::by_libssh(const Host& host) {
  HORA_TRY(prepare_libssh());
  const LibsshModule& library = libssh();
  const std::unique_ptr<ssh_session_struct, void (*)(ssh_session)> session(library.ssh_new(),
                                                                           library.ssh_free);
  if (!session) return make_error(ErrorCode::kUnavailable, "libssh: out of memory");
  HORA_TRY(read_by_libssh(session.get(), host));
  const auto option = [&](ssh_options_e which, const std::string& otherwise) {
    char* value = nullptr;
    if (library.ssh_options_get(session.get(), which, &value) != SSH_OK) return otherwise;
    const SshText owner(value);
    return std::string(value);
  };
  // In the terms of `ssh -G`, so that the rest is the same.
  const std::string folder = machine_.home + "/.ssh/";
  unsigned port = 22;
  (void)library.ssh_options_get_port(session.get(), &port);
  if (options_.port) port = static_cast<unsigned>(*options_.port);
  SshSettings settings{
      {"hostname", {option(SSH_OPTIONS_HOST, host.name)}},
      {"port", {std::to_string(port)}},
      {"user", {host.user.empty() ? option(SSH_OPTIONS_USER, machine_.local_user) : host.user}},
      {"userknownhostsfile", {option(SSH_OPTIONS_KNOWNHOSTS, folder + "known_hosts")}},
      {"globalknownhostsfile", {option(SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/etc/ssh/ssh_known_hosts")}},
      {"proxycommand", {option(SSH_OPTIONS_PROXYCOMMAND, "none")}},
      {"identityfile",
       {option(SSH_OPTIONS_IDENTITY, folder + "id_rsa"), folder + "id_rsa", folder + "id_ecdsa",
        folder + "id_ed25519"}}};
  if (!options_.identity_file.empty()) settings["identityfile"] = {options_.identity_file};
  if (options_.accept_new_host_keys) settings["stricthostkeychecking"] = {"accept-new"};
  SshTarget target = resolve_ssh_target(host, options_, settings, settings, machine_);
  target.libssh_config = options_.config_file;
  target.program_reason.clear();
  return target;
}

}  // namespace hora::launcher
