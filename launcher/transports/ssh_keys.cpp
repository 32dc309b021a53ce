// SPDX-License-Identifier: Apache-2.0
// The agent's protocol (draft-ietf-sshm-ssh-agent): messages of a length, a type and what belongs
// to it. libssh reads and writes its end of the relay without a limit, on an event loop's thread,
// so the other end needs a thread of its own.
// Key files are read here, without libssh: libssh does not name a type that it lacks, and cannot
// compare a private key that has a passphrase with one of the agent.
#include "launcher/transports/ssh_keys.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>

#include "launcher/transports/known_hosts.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

// How long an agent may take to list its keys.
constexpr std::chrono::seconds kTimeout{3};
constexpr std::size_t kLongestMessage = 256 * 1024;  // as in ssh
constexpr char kListKeys = 11;                       // SSH_AGENTC_REQUEST_IDENTITIES
constexpr char kKeys = 12;                           // SSH_AGENT_IDENTITIES_ANSWER
constexpr char kFailure = 5;                         // SSH_AGENT_FAILURE

bool write_message(int fd, std::string_view message, Deadline deadline) {
  return net::send_all(fd, ssh_string(message), deadline).has_value();
}

// Nothing at the end of the stream, for a message that is too long, and at the deadline.
std::optional<std::string> read_message(int fd, Deadline deadline) {
  std::string bytes;
  std::size_t wanted = 4;
  while (bytes.size() < wanted) {
    char buffer[4096];
    const auto got =
        net::receive_some(fd, buffer, std::min(sizeof buffer, wanted - bytes.size()), deadline);
    if (!got || *got == 0) return std::nullopt;
    bytes.append(buffer, *got);
    if (wanted > 4 || bytes.size() < 4) continue;
    std::string_view head = bytes;
    wanted += *take_ssh_number(head);
    if (wanted > kLongestMessage) return std::nullopt;
  }
  return bytes.substr(4);
}

// A count, then a key and its comment each.
Result<std::vector<AgentKey>> parse_keys(std::string_view message) {
  std::vector<AgentKey> keys;
  if (message.empty() || message.front() != kKeys) {
    return make_error(ErrorCode::kFailed, "it refuses to list its keys");
  }
  message.remove_prefix(1);
  const auto count = take_ssh_number(message);
  for (std::uint32_t i = 0; i < count.value_or(0); ++i) {
    const auto key = take_ssh_string(message);
    const auto comment = take_ssh_string(message);
    if (!key || !comment) return make_error(ErrorCode::kFailed, "its answer is cut off");
    keys.push_back({std::string(*key), std::string(*comment)});
  }
  return keys;
}

}  // namespace

// EAGAIN: its backlog is full.
Result<os::Fd> connect_to_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return errno_error(ENAMETOOLONG, path);
  std::memcpy(address.sun_path, path.data(), path.size());
  os::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_error(errno, "making a socket");
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.get(), to, sizeof address) == 0) return socket;
  if (errno == EAGAIN) return make_error(ErrorCode::kTimedOut, "it does not answer");
  return errno_error(errno, path);
}

// The lock is held meanwhile, so that all threads wait for a silent agent at the same time, and
// none asks it again.
Result<std::vector<AgentKey>> list_agent_keys(const std::string& socket_path) {
  static std::mutex mutex;
  static std::set<std::string> silent;
  const Error silence = make_error(ErrorCode::kTimedOut, "it does not answer");
  std::lock_guard lock(mutex);
  if (silent.count(socket_path) != 0) return silence;
  auto agent = connect_to_socket(socket_path);
  const Deadline deadline = Clock::now() + kTimeout;
  std::optional<std::string> answer;
  if (agent && write_message(agent->get(), {&kListKeys, 1}, deadline)) {
    answer = read_message(agent->get(), deadline);
  }
  if (answer) return parse_keys(*answer);
  if (!agent && agent.error().code != ErrorCode::kTimedOut) return std::move(agent).error();
  if (agent && Clock::now() < deadline) {
    return make_error(ErrorCode::kFailed, "it ended the connection");
  }
  silent.insert(socket_path);
  return silence;
}

std::string SshAgentRelay::answer_list() {
  const std::lock_guard lock(mutex_);
  return kKeys + ssh_number(1) + ssh_string(shown_.key) + ssh_string(shown_.comment);
}

// Ends when libssh's side is closed, or with the destructor. An agent may be slow for good reasons
// (it asks its user, or a token to be touched), so a signature is waited for without a deadline.
void SshAgentRelay::serve() {
  while (const auto request = read_message(ours_.get(), Deadline::max())) {
    std::optional<std::string> answer;
    if (*request == std::string(1, kListKeys)) {
      answer = answer_list();
    } else if (write_message(agent_.get(), *request, Deadline::max())) {
      answer = read_message(agent_.get(), Deadline::max());
    }
    const std::string text = answer.value_or(std::string(1, kFailure));
    if (!write_message(ours_.get(), text, Deadline::max())) return;
  }
}

Result<std::unique_ptr<SshAgentRelay>> SshAgentRelay::connect(const std::string& socket_path) {
  std::unique_ptr<SshAgentRelay> relay(new SshAgentRelay);
  auto agent = connect_to_socket(socket_path);
  if (!agent) return std::move(agent).error();
  relay->agent_ = *std::move(agent);
  // libssh cannot distinguish its end of a pair from the socket of an agent.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error(errno, "making a socket pair");
  }
  relay->ours_ = os::Fd(ends[0]);
  relay->theirs_ = os::Fd(ends[1]);
  auto thread = os::start_service_thread("ssh-agent", [raw = relay.get()] { raw->serve(); });
  if (!thread) return std::move(thread).error();
  relay->thread_ = *std::move(thread);
  return relay;
}

// The thread may wait for libssh or for the agent.
SshAgentRelay::~SshAgentRelay() {
  for (const os::Fd* each : {&ours_, &agent_}) ::shutdown(each->get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

// libssh asks for the list at the start of each login, so the next one sees the new key.
void SshAgentRelay::show(AgentKey key) {
  const std::lock_guard lock(mutex_);
  shown_ = std::move(key);
}

namespace {

constexpr std::size_t kLargestKey = 1u << 20;
constexpr std::string_view kPublicEnding = ".pub";

struct KeyFile {
  std::string text;
  bool exposed = false;  // it belongs to this user, and others may read or write it
};

// Nothing for what is not a regular file: a named pipe would be waited for.
std::optional<KeyFile> read_key_file(const std::string& path) {
  const os::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  auto text = os::read_to_end(fd.get(), path, kLargestKey);
  if (!text) return std::nullopt;
  constexpr unsigned kOthers = S_IRWXG | S_IRWXO;
  return KeyFile{*std::move(text), status.st_uid == ::getuid() && (status.st_mode & kOthers) != 0};
}

// Every format of a private key is in an armour that begins so.
bool is_private(std::string_view text) { return text.starts_with("-----BEGIN "); }

// What one named file stands for.
struct NamedKey {
  std::string path;
  std::string key;  // empty: unknown
  bool has_private = false;
  bool exposed = false;
};

// The private file shows its public half only in OpenSSH's own format; the ".pub" next to it does
// for the others, and where the private half is in the agent alone (1Password, a YubiKey).
std::optional<NamedKey> look_at(const std::string& path) {
  NamedKey named{path, {}, false, false};
  const auto file = read_key_file(path);
  const auto public_file = read_key_file(path + std::string(kPublicEnding));
  if (!file && !public_file) return std::nullopt;
  if (file) {
    named.key = public_key_in(file->text);
    named.has_private = is_private(file->text);
    named.exposed = file->exposed;
  }
  if (named.key.empty() && public_file) named.key = public_key_in(public_file->text);
  return named;
}

class Planner {
 public:
  Planner(const SshKeys& keys, std::string_view algorithms)
      : keys_(keys), algorithms_(algorithms) {}

  // OpenSSH's order: the named keys that the agent has, its others, and the files.
  SshIdentities plan() {
    list_agent();
    std::vector<NamedKey> named;
    for (const auto* paths : {&keys_.files, &keys_.missing}) {
      for (const std::string& path : *paths) {
        if (auto key = look_at(path)) {
          named.push_back(*std::move(key));
        } else {
          plan_.unusable.push_back(path + " (missing)");
        }
      }
    }
    // ssh uses the agent's order here, and that of the configuration below.
    for (const AgentKey& each : agent_) {
      const auto is_named = [&each](const NamedKey& one) { return one.key == each.key; };
      const auto found = std::find_if(named.begin(), named.end(), is_named);
      if (found != named.end()) add_from_agent(each, found->path);
    }
    if (!keys_.identities_only) {
      for (const AgentKey& each : agent_) add_from_agent(each, each.comment);
    }
    for (const NamedKey& each : named) add_file(each);
    return std::move(plan_);
  }

 private:
  void list_agent() {
    if (keys_.agent_socket.empty()) return;
    auto listed = list_agent_keys(keys_.agent_socket);
    const std::string problem = !listed           ? listed.error().message
                                : listed->empty() ? "it has no keys"
                                                  : "";
    if (!problem.empty()) {
      plan_.unusable.push_back("ssh-agent (" + keys_.agent_socket + ": " + problem + ")");
    } else {
      agent_ = *std::move(listed);
    }
  }

  void add_from_agent(const AgentKey& key, const std::string& called) {
    if (is_planned(key.key)) return;
    const std::string name = called + " of ssh-agent";
    if (is_excluded(name, key.key) || is_foreign(name, key.key)) return;
    plan_.usable.push_back({SshIdentity::Source::kAgent, name, key.key, key.comment});
  }

  // As in ssh, a key that others may read is not used: it counts as given away.
  void add_file(const NamedKey& named) {
    if (is_planned(named.key) || is_excluded(named.path, named.key)) return;
    if (is_foreign(named.path, named.key)) return;
    if (!named.has_private) {
      plan_.unusable.push_back(named.path + " (the private key is neither there nor in ssh-agent)");
    } else if (named.exposed) {
      plan_.unusable.push_back(named.path + " (ignored: others may read it; chmod 600)");
    } else {
      plan_.usable.push_back({SshIdentity::Source::kFile, named.path, named.key, {}});
    }
  }

  // libssh would leave such a key out as well, without a message. RSA keys sign by three
  // algorithms.
  bool is_excluded(const std::string& name, const std::string& key) {
    const std::string_view type = type_of_key(key);
    if (type.empty() || algorithms_.empty() || !libssh_has_type(type)) return false;
    for (const std::string_view each : split(algorithms_, ',')) {
      if (each == type || (type == "ssh-rsa" && each.starts_with("rsa-sha2-"))) return false;
    }
    plan_.unusable.push_back(name + " (PubkeyAcceptedAlgorithms has no " + std::string(type) + ")");
    return true;
  }

  // Whether it is of a type that libssh may lack. It is not dropped: the ssh program may have it.
  bool is_foreign(const std::string& name, const std::string& key) {
    if (key.empty() || libssh_has_type(type_of_key(key))) return false;
    plan_.foreign.push_back({name, std::string(type_of_key(key))});
    return true;
  }

  // A server must not see a key twice: each refusal counts.
  bool is_planned(const std::string& key) const {
    return !key.empty() && std::any_of(plan_.usable.begin(), plan_.usable.end(),
                                       [&key](const SshIdentity& each) { return each.key == key; });
  }

  const SshKeys& keys_;
  const std::string_view algorithms_;
  std::vector<AgentKey> agent_;
  SshIdentities plan_;
};

}  // namespace

std::string public_key_in(std::string_view text) {
  constexpr std::string_view kBegin = "-----BEGIN OPENSSH PRIVATE KEY-----";
  constexpr std::string_view kMagic{"openssh-key-v1\0", 15};
  if (text.starts_with(kBegin)) {
    text.remove_prefix(kBegin.size());
    const auto bytes = from_base64(text.substr(0, text.find('-')));
    if (!bytes || !bytes->starts_with(kMagic)) return {};
    // Cipher, its key derivation and the options of that; a count of keys; the public one.
    std::string_view rest = std::string_view(*bytes).substr(kMagic.size());
    for (int i = 0; i < 3; ++i) (void)take_ssh_string(rest);
    (void)take_ssh_number(rest);
    return std::string(take_ssh_string(rest).value_or(""));
  }
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(trim(line), ' ');
    if (words.size() < 2) continue;
    const auto key = from_base64(words[1]);
    if (key && !words[0].empty() && type_of_key(*key) == words[0]) return *key;
  }
  return {};
}

SshIdentities plan_identities(const SshKeys& keys, std::string_view algorithms) {
  return Planner(keys, algorithms).plan();
}

}  // namespace hora::launcher
