// SPDX-License-Identifier: Apache-2.0
// The files are not understood here, only gathered: a line that begins with Include leads to more
// of them, whatever block it is in. What that misses is noticed: `ssh -v` names each file that it
// reads, and an answer that depends on another one is not kept.
#include "launcher/transports/ssh_answers.h"

#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cctype>
#include <functional>
#include <string_view>

#include "launcher/process/captured_run.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kLargestConfig = 4u << 20;
constexpr std::size_t kLargestMemory = 16u << 20;
// Files that include each other more than once are read 2, 4, 8, ... times at each depth.
constexpr int kMostFiles = 1024;
constexpr int kDeepest = 16;               // as in OpenSSH
constexpr Milliseconds kPatience{60'000};  // commands of `Match exec` included

const std::vector<std::string> kWithoutConfiguration{"-F", "/dev/null", "--", "host", "/bin/sh"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

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

// Errs on the side of asking ssh once more: whatever might change an answer without changing a file
// makes the whole configuration one that is not remembered.
class Gatherer {
 public:
  Gatherer(SshConfigFiles& files, std::string home) : files_(files), home_(std::move(home)) {}

  // Relative patterns are those of `folder`.
  void add(const std::string& path, const std::string& folder, int depth) {
    if (++count_ > kMostFiles) files_.endless = true;
    if (files_.endless || depth > kDeepest) return;
    files_.paths.insert(path);
    const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const auto text = file.valid() ? os::read_to_end(file.get(), path, kLargestConfig)
                                   : Result<std::string>(std::string());
    if (!text) files_.decides_alone = false;
    append_record(files_.text, path);
    append_record(files_.text, text ? *text : "");
    if (!text) return;
    for (const std::string_view line : split(*text, '\n')) look_at(line, folder, depth);
  }

 private:
  void look_at(std::string_view raw, const std::string& folder, int depth) {
    std::string_view line = trim(raw);
    while (!line.empty() && line.front() == '"') line.remove_prefix(1);
    const std::string word = lower(line.substr(0, line.find_first_of(" \t=\"\f\r")));
    const std::string rest = lower(line.substr(word.size()));
    if (word.starts_with("#")) return;
    // `Match exec` runs a command, `Match localnetwork` looks at the interfaces, a canonical name
    // comes from name servers.
    if (word == "match" && (rest.find("exec") != std::string::npos ||
                            rest.find("localnetwork") != std::string::npos)) {
      files_.decides_alone = false;
    }
    if (word == "canonicalizehostname" && trim(rest) != "no") files_.decides_alone = false;
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
      append_record(files_.text, name);
      append_record(files_.text, value == nullptr ? "" : value);
    }
  }

  void include(std::string_view patterns, const std::string& folder, int depth) {
    if (patterns.find_first_of("\"'\\$%#") != std::string_view::npos) {
      files_.decides_alone = false;
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

  SshConfigFiles& files_;
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

SshConfigFiles SshConfigFiles::read(const std::string& user_file, const std::string& home) {
  SshConfigFiles files;
  Gatherer gatherer(files, home);
  const std::string folder = home + "/.ssh";
  gatherer.add(user_file.empty() ? folder + "/config" : user_file, folder, 0);
  if (user_file.empty()) gatherer.add("/etc/ssh/ssh_config", "/etc/ssh", 0);
  return files;
}

SshAnswers::SshAnswers(std::string program, const SshOptions& options, const SshMachine& machine,
                       std::string folder)
    : program_(std::move(program)),
      folder_(std::move(folder)),
      options_(ssh_arguments(options)),
      files_(SshConfigFiles::read(options.config_file, machine.home)) {
  key_ = one_record({program_, stamp_of_program(program_), machine.home, machine.local_user,
                     machine.host_name, std::to_string(machine.uid), one_record(options_),
                     files_.text});
  // Launches with other options have another file.
  name_ = "ssh-" + std::to_string(std::hash<std::string>()(one_record(options_)));
  if (files_.decides_alone) load();
}

// What does not fit (another configuration, another ssh, a torn file) is asked again.
void SshAnswers::load() {
  const auto text = os::read_own_file(folder_, name_, kLargestMemory);
  if (!text) return;
  std::string_view rest = *text;
  std::string record;
  if (!take_record(rest, record) || record != key_) return;
  for (std::string answer; take_record(rest, record) && take_record(rest, answer);) {
    known_[record] = answer;
  }
}

void SshAnswers::save() {
  const std::lock_guard lock(mutex_);
  if (!learnt_ || !files_.decides_alone || !os::open_own_folder(folder_, true).valid()) return;
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

// What ssh prints for a user (a deprecated keyword, say) is passed on, once.
Result<std::string> SshAnswers::ask(const std::vector<std::string>& question) {
  std::vector<std::string> argv{program_, "-v", "-G"};
  argv.insert(argv.end(), question.begin(), question.end());
  auto run = run_captured(argv, kPatience);
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

// Two threads may ask the same at a time; both get the same answer.
Result<SshSettings> SshAnswers::settings(const std::vector<std::string>& question) {
  const std::string record = one_record(question);
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(record);
    if (found != known_.end()) return parse_ssh_settings(found->second);
  }
  auto answer = ask(question);
  if (!answer) return std::move(answer).error();
  const std::lock_guard lock(mutex_);
  learnt_ = true;
  return parse_ssh_settings(known_[record] = *std::move(answer));
}

std::vector<std::string> SshAnswers::question_about(const Host& host) const {
  std::vector<std::string> question = options_;
  if (!host.user.empty()) question.insert(question.end(), {"-l", host.user});
  question.insert(question.end(), {"--", host.name, "/bin/sh"});
  return question;
}

bool SshAnswers::knows(const Host& host) {
  const std::lock_guard lock(mutex_);
  return known_.count(one_record(kWithoutConfiguration)) != 0 &&
         known_.count(one_record(question_about(host))) != 0;
}

Result<SshSettings> SshAnswers::of(const Host& host) {
  if (files_.endless) {
    return make_error(ErrorCode::kUsage,
                      "ssh config: Include leads to too many files; one may include itself");
  }
  return settings(question_about(host));
}

// The other threads wait for the first one: they need the same answer.
const SshSettings& SshAnswers::defaults() {
  std::call_once(defaults_asked_, [this] {
    auto said = settings(kWithoutConfiguration);
    if (said) defaults_ = *std::move(said);
  });
  return defaults_;
}

}  // namespace hora::launcher
