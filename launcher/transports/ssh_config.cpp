// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_config.h"

#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "launcher/plan/worker_environment.h"
#include "launcher/process/captured_run.h"
#include "launcher/process/program_search.h"
#include "launcher/text/text.h"
#include "launcher/transports/libssh.h"
#include "launcher/transports/ssh_keys.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/addresses.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

// --- the answers of ssh --------------------------------------------------------------------------

constexpr std::size_t kLargestConfig = 4u << 20;
constexpr std::size_t kLargestMemory = 16u << 20;
// Files that include each other more than once are read 2, 4, 8, ... times at each depth.
constexpr int kMostFiles = 1024;
constexpr int kDeepest = 16;              // as in OpenSSH
constexpr Milliseconds kTimeout{60'000};  // commands of `Match exec` included

const std::vector<std::string> kWithoutConfiguration{"-F", "/dev/null", "--", "host", "/bin/sh"};

// Records that may hold any bytes: "5:hello,".
void append_record(std::string& to, std::string_view record) {
  to += std::to_string(record.size()) + ":" + std::string(record) + ",";
}

bool take_record(std::string_view& from, std::string& record) {
  const std::size_t colon = from.find(':');
  if (colon == std::string_view::npos) return false;
  const auto size = parse_int<std::size_t>(from.substr(0, colon));
  from.remove_prefix(colon + 1);
  if (!size || *size >= from.size() || from[*size] != ',') return false;
  record = from.substr(0, *size);
  from.remove_prefix(*size + 1);
  return true;
}

// The text of the configuration files, those of Include too, and the variables that they name.
//
// Only gathers the files: a line that begins with Include leads to more of them, in whatever block.
// What this misses shows later: `ssh -v` names each file that it reads, and an answer that depends
// on another one is not kept. In doubt ssh runs once more: what might change an answer without a
// change of a file makes the whole configuration one that is not remembered.
class SshConfigFiles {
 public:
  std::string text;             // of all, with their names
  std::set<std::string> paths;  // of all that were looked for
  bool decides_alone = true;    // false: a command, the network or the environment has a say
  bool endless = false;         // Include leads to too many files

  // `user_file` empty: that of `home` and then the system's.
  SshConfigFiles(const std::string& user_file, const std::string& home) : home_(home) {
    const std::string folder = home + "/.ssh";
    add(user_file.empty() ? folder + "/config" : user_file, folder, 0);
    if (user_file.empty()) add("/etc/ssh/ssh_config", "/etc/ssh", 0);
  }

 private:
  // Relative patterns are those of `folder`.
  void add(const std::string& path, const std::string& folder, int depth) {
    if (++count_ > kMostFiles) endless = true;
    if (endless || depth > kDeepest) return;
    paths.insert(path);
    const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const auto read = file.valid() ? os::read_to_end(file.get(), path, kLargestConfig)
                                   : Result<std::string>(std::string());
    if (!read) decides_alone = false;
    append_record(text, path);
    append_record(text, read ? *read : "");
    if (!read) return;
    for (const std::string_view line : split(*read, '\n')) look_at(line, folder, depth);
  }

  void look_at(std::string_view raw, const std::string& folder, int depth) {
    std::string_view line = trim(raw);
    while (!line.empty() && line.front() == '"') line.remove_prefix(1);
    const std::string word = lower_case(line.substr(0, line.find_first_of(" \t=\"\f\r")));
    const std::string rest = lower_case(line.substr(word.size()));
    if (word.starts_with("#")) return;
    // `Match exec` runs a command, `Match localnetwork` looks at the interfaces, a canonical name
    // comes from name servers.
    if (word == "match" && (rest.find("exec") != std::string::npos ||
                            rest.find("localnetwork") != std::string::npos)) {
      decides_alone = false;
    }
    if (word == "canonicalizehostname" && trim(rest) != "no") decides_alone = false;
    note_variables(line);
    if (word == "include") include(line.substr(word.size()), folder, depth);
  }

  // "${NAME}" stands for a variable of the environment.
  void note_variables(std::string_view line) {
    for (std::size_t at = 0; (at = line.find("${", at)) != std::string_view::npos; ++at) {
      const std::size_t end = line.find('}', at);
      if (end == std::string_view::npos) return;
      const std::string name(line.substr(at + 2, end - at - 2));
      const char* value = ::getenv(name.c_str());
      append_record(text, name);
      append_record(text, value == nullptr ? "" : value);
    }
  }

  void include(std::string_view patterns, const std::string& folder, int depth) {
    if (patterns.find_first_of("\"'\\$%#") != std::string_view::npos) {
      decides_alone = false;
      return;
    }
    std::string plain(patterns);
    for (char& c : plain) {
      if (c == '\t' || c == '=' || c == '\r' || c == '\f') c = ' ';
    }
    for (const std::string_view word : split(plain, ' ')) {
      if (word.empty()) continue;
      std::string pattern(word);
      if (pattern.starts_with("~/")) pattern.replace(0, 1, home_);
      if (!pattern.starts_with("/")) pattern.insert(0, folder + "/");
      glob_t found{};
      if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &found) == 0) {
        for (std::size_t i = 0; i < found.gl_pathc; ++i) add(found.gl_pathv[i], folder, depth + 1);
      }
      ::globfree(&found);
    }
  }

  const std::string home_;
  int count_ = 0;
};

// What changes when another ssh is installed.
std::string stamp_of_program(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " +
         std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec);
}

// Words with their lengths: no two lists look the same.
std::string one_record(const std::vector<std::string>& words) {
  std::string record;
  for (const std::string& word : words) append_record(record, word);
  return record;
}

}  // namespace

// What the ssh program prints for hosts, remembered from launch to launch: an answer is the same as
// long as the program, the question and the text of every file are, unless the configuration runs
// commands or asks name servers. Thread-safe.
class SshAnswers {
 public:
  // `program`: of ssh. `folder`: for what is remembered; empty: nothing is.
  SshAnswers(std::string program, const SshOptions& options, const SshMachine& machine,
             std::string folder)
      : program_(std::move(program)),
        folder_(std::move(folder)),
        options_(ssh_arguments(options)),
        files_(options.config_file, machine.home) {
    key_ = one_record({program_, stamp_of_program(program_), machine.home, machine.local_user,
                       machine.host_name, std::to_string(machine.uid), one_record(options_),
                       files_.text});
    // Launches with other options have another file.
    name_ = "ssh-" + std::to_string(std::hash<std::string>()(one_record(options_)));
    if (files_.decides_alone) load();
  }

  // Whether of() has its answer, and that without configuration.
  bool knows(const Host& host) {
    const std::lock_guard lock(mutex_);
    return known_.count(one_record(kWithoutConfiguration)) != 0 &&
           known_.count(one_record(question_about(host))) != 0;
  }

  // Blocks while ssh runs. Errors: ssh's own words about the configuration.
  Result<SshSettings> of(const Host& host) {
    if (files_.endless) {
      return make_error(ErrorCode::kUsage,
                        "ssh config: Include leads to too many files; one may include itself");
    }
    return settings(question_about(host));
  }

  // Without any configuration; empty where the program is not OpenSSH's. Lives as long as this. The
  // other threads wait for the first one: they need the same answer.
  const SshSettings& defaults() {
    std::call_once(defaults_asked_, [this] {
      auto answer = settings(kWithoutConfiguration);
      if (answer) defaults_ = *std::move(answer);
    });
    return defaults_;
  }

  // A failure costs later launches time and nothing else.
  void save() {
    const std::lock_guard lock(mutex_);
    if (!changed_ || !files_.decides_alone || !os::open_own_folder(folder_, true).valid()) return;
    std::string text;
    append_record(text, key_);
    for (const auto& [question, answer] : known_) {
      append_record(text, question);
      append_record(text, answer);
    }
    if (text.size() > kLargestMemory) return;
    auto file = os::AtomicFile::make(folder_ + "/" + name_, 0600);
    if (file && file->write(text)) (void)file->finish();
  }

 private:
  // What does not fit (another configuration, another ssh, a torn file) is asked again.
  void load() {
    const auto text = os::read_own_file(folder_, name_, kLargestMemory);
    if (!text) return;
    std::string_view rest = *text;
    std::string record;
    if (!take_record(rest, record) || record != key_) return;
    for (std::string answer; take_record(rest, record) && take_record(rest, answer);) {
      known_[record] = answer;
    }
  }

  std::vector<std::string> question_about(const Host& host) const {
    std::vector<std::string> question = options_;
    // Of two ports ssh takes the first one.
    if (host.port) question.insert(question.begin(), {"-p", std::to_string(*host.port)});
    if (!host.user.empty()) question.insert(question.end(), {"-l", host.user});
    question.insert(question.end(), {"--", host.name, "/bin/sh"});
    return question;
  }

  // Two threads may ask the same at a time; both get the same answer.
  Result<SshSettings> settings(const std::vector<std::string>& question) {
    const std::string record = one_record(question);
    {
      const std::lock_guard lock(mutex_);
      const auto found = known_.find(record);
      if (found != known_.end()) return parse_ssh_settings(found->second);
    }
    auto answer = ask(question);
    if (!answer) return std::move(answer).error();
    const std::lock_guard lock(mutex_);
    changed_ = true;
    return parse_ssh_settings(known_[record] = *std::move(answer));
  }

  Result<std::string> ask(const std::vector<std::string>& question);

  const std::string program_;
  const std::string folder_;
  const std::vector<std::string> options_;  // of every question
  SshConfigFiles files_;
  std::string key_;   // all that the answers depend on
  std::string name_;  // of the file in the folder
  std::once_flag defaults_asked_;
  SshSettings defaults_;
  std::mutex mutex_;
  std::map<std::string, std::string> known_;  // by question
  std::set<std::string> warnings_;            // that were passed on
  bool changed_ = false;
};

// ssh's own messages (about a deprecated keyword, say) are passed on, once.
Result<std::string> SshAnswers::ask(const std::vector<std::string>& question) {
  std::vector<std::string> argv{program_, "-v", "-G"};
  argv.insert(argv.end(), question.begin(), question.end());
  auto run = run_captured(argv, kTimeout);
  if (!run) return std::move(run).error();
  std::string words;
  bool complete = true;
  for (const std::string_view line : split(run->errors, '\n')) {
    constexpr std::string_view kReads = "debug1: Reading configuration data ";
    if (line.starts_with(kReads)) {
      const std::string path(trim(line.substr(kReads.size())));
      complete &= path == "/dev/null" || files_.paths.count(path) != 0;
    }
    if (line.starts_with("debug") || line.starts_with("OpenSSH_") || trim(line).empty()) continue;
    words += (words.empty() ? "" : "; ") + visible_line(trim(line));
  }
  if (run->exit_code != 0) {
    return make_error(ErrorCode::kUsage, "the ssh configuration: " +
                                             (words.empty() ? "'ssh -G' exited with status " +
                                                                  std::to_string(run->exit_code)
                                                            : words));
  }
  const std::lock_guard lock(mutex_);
  if (!complete) files_.decides_alone = false;
  if (!words.empty() && warnings_.insert(words).second) os::log_warn("ssh config", words);
  run->output.resize(run->output.size() - run->errors.size());
  return std::move(run->output);
}

// --- targets -------------------------------------------------------------------------------------

namespace {

using FileKind = SshMachine::FileKind;

FileKind kind_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return FileKind::kNone;
  if (S_ISDIR(status.st_mode)) return FileKind::kDirectory;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) ? FileKind::kPipe : FileKind::kFile;
}

std::optional<std::string> variable(const std::string& name) {
  const char* value = ::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// `klist` knows where tickets are. Without it, whether anything here uses Kerberos.
bool may_have_ticket() {
  constexpr Milliseconds kTicketTimeout{2'000};
  static const bool answer = [] {
    const std::string path = variable("PATH").value_or("/usr/bin:/bin");
    if (!search_program("klist", path, AT_FDCWD).path.empty()) {
      const auto run = run_captured({"klist", "-s"}, kTicketTimeout);
      return !run || run->exit_code == 0;
    }
    return variable("KRB5CCNAME").has_value() || kind_of("/etc/krb5.conf") != FileKind::kNone;
  }();
  return answer;
}

// Like ssh, takes home and name from the password database, not from $HOME and $USER.
SshMachine this_machine() {
  SshMachine machine;
  // A buffer of this size holds local accounts; with a larger record the environment decides.
  char buffer[4096];
  passwd record{};
  passwd* found = nullptr;
  machine.home = variable("HOME").value_or("");
  machine.local_user = variable("USER").value_or("");
  if (::getpwuid_r(::getuid(), &record, buffer, sizeof buffer, &found) == 0 && found != nullptr) {
    machine.home = record.pw_dir;
    machine.local_user = record.pw_name;
  }
  machine.host_name = net::host_name();
  machine.shell = variable("SHELL").value_or("");
  if (machine.shell.empty()) machine.shell = "/bin/sh";
  machine.uid = ::getuid();
  machine.kind_of = kind_of;
  // The socket of an ssh that has ended refuses the connection.
  machine.listens = [](const std::string& path) { return connect_to_socket(path).has_value(); };
  machine.variable = variable;
  machine.may_have_ticket = may_have_ticket;
  return machine;
}

}  // namespace

// Without a named file ssh is not asked: the first host gets the error of check().
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

// A named file that is missing is an error before any host is contacted. A device would be read for
// ever, and a pipe is empty for the second host.
Status SshTargets::check() const {
  for (const auto& [what, path] : {std::pair{"ssh config", options_.config_file},
                                   std::pair{"identity file", options_.identity_file}}) {
    if (path.empty()) continue;
    struct stat status {};
    const bool is_there = ::stat(path.c_str(), &status) == 0;
    if ((is_there && S_ISREG(status.st_mode)) || path == "/dev/null") continue;
    return make_error(ErrorCode::kNotFound,
                      "the " + std::string(what) + " " + path +
                          (is_there ? " is not a regular file" : " does not exist"));
  }
  return Ok{};
}

std::vector<std::string> SshTargets::program_command() {
  if (!answers_) return {};
  std::vector<std::string> command{program_, "-T", "-o", "ControlMaster=no"};
  for (std::string& word : ssh_arguments(options_)) command.push_back(std::move(word));
  // These would take the agent's input away; older versions lack them.
  if (answers_->defaults().count("stdinnull") != 0) {
    command.insert(command.end(), {"-o", "StdinNull=no", "-o", "ForkAfterAuthentication=no"});
  }
  return command;
}

bool SshTargets::remembers(const Host& host) { return answers_ && answers_->knows(host); }

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
  if (const auto given = host.port ? host.port : options_.port)
    port = static_cast<unsigned>(*given);
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
