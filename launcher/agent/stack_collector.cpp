#include "launcher/agent/stack_collector.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/process/process_table.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostPeers = 512;
constexpr std::size_t kMostText = 64 * 1024;           // of one process
constexpr std::chrono::milliseconds kQuiet{150};       // silence after which all has been said
constexpr std::chrono::milliseconds kLookAgain{25};

std::string text_of(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char bytes[4096];
  const ssize_t got = file.valid() ? ::read(file.get(), bytes, sizeof bytes) : 0;
  return got > 0 ? std::string(bytes, static_cast<std::size_t>(got)) : std::string();
}

}  // namespace

StackCollector::~StackCollector() {
  loop_.cancel(timer_);
  if (listener_.valid()) loop_.unwatch(listener_.get());
  for (const auto& [fd, peer] : peers_) loop_.unwatch(fd);
}

int StackCollector::signal_number() { return SIGRTMAX - 3; }

const std::string& StackCollector::open() {
  os::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return name_;
  const std::string name = "hora-stacks-" + os::random_token();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(fd.get(), 128) != 0 ||
      !loop_.watch(fd.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); })) {
    return name_;
  }
  listener_ = std::move(fd);
  name_ = name;
  return name_;
}

void StackCollector::on_connection() {
  while (true) {
    os::Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      // No descriptors left: what waits would be reported again and again.
      loop_.unwatch(listener_.get());
      listener_.reset();
      return;
    }
    ucred who{};
    socklen_t size = sizeof who;
    if (peers_.size() >= kMostPeers ||
        ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != ::geteuid()) {
      continue;
    }
    const int number = fd.get();
    if (!loop_.watch(number, EPOLLIN, [this, number](std::uint32_t) { on_readable(number); })) continue;
    Peer& peer = peers_[number];
    peer.fd = std::move(fd);
    peer.pid = who.pid;
  }
}

void StackCollector::on_readable(int fd) {
  const auto found = peers_.find(fd);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  char bytes[8192];
  while (true) {
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      last_heard_ = os::Clock::now();
      // What nobody has asked for is thrown away.
      if (peer.asked && peer.text.size() < kMostText) peer.text.append(bytes, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    loop_.unwatch(fd);
    peers_.erase(found);
    return;
  }
}

void StackCollector::collect(std::vector<RankProcess> ranks, Milliseconds patience,
                             std::function<void(StackReport)> done) {
  if (done_) return done({});
  ranks_ = std::move(ranks);
  done_ = std::move(done);
  deadline_ = os::Clock::now() + patience;
  last_heard_ = os::Clock::now();
  for (auto& [fd, peer] : peers_) {
    peer.text.clear();
    const pid_t session = ::getsid(peer.pid);
    for (const RankProcess& rank : ranks_) {
      if (session == rank.pid) peer.asked = ::kill(peer.pid, signal_number()) == 0;
    }
  }
  look_again();
}

void StackCollector::look_again() {
  const auto now = os::Clock::now();
  bool all_answered = true;
  for (const auto& [fd, peer] : peers_) all_answered &= !peer.asked || !peer.text.empty();
  if (now >= deadline_ || (all_answered && now - last_heard_ >= kQuiet)) return finish();
  timer_ = loop_.call_after(kLookAgain, [this] { look_again(); });
}

void StackCollector::finish() {
  timer_ = 0;
  StackReport report;
  for (const RankProcess& rank : ranks_) {
    ProcessStacks own = describe(rank.rank, rank.pid);
    own.leader = true;
    std::vector<ProcessStacks> others;
    for (auto& [fd, peer] : peers_) {
      if (!peer.asked || ::getsid(peer.pid) != rank.pid) continue;
      if (peer.pid == rank.pid) {
        own.stacks = std::move(peer.text);
      } else {
        others.push_back(describe(rank.rank, peer.pid));
        others.back().stacks = std::move(peer.text);
      }
    }
    report.processes.push_back(std::move(own));
    for (ProcessStacks& other : others) report.processes.push_back(std::move(other));
  }
  for (auto& [fd, peer] : peers_) {
    peer.asked = false;
    peer.text.clear();
  }
  const auto done = std::exchange(done_, nullptr);
  done(std::move(report));
}

ProcessStacks StackCollector::describe(int rank, pid_t pid) const {
  ProcessStacks out;
  out.rank = rank;
  out.pid = pid;
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::string stat = text_of(folder + "/stat");
  const std::size_t open = stat.find('(');
  const std::size_t close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos) {
    out.state = "gone";
    return out;
  }
  out.program = stat.substr(open + 1, close - open - 1);
  const auto fields = split(trim(std::string_view(stat).substr(close + 1)), ' ');
  if (fields.size() > 17) {
    out.state = fields[0];
    const auto ticks = parse_int<std::int64_t>(fields[11]).value_or(0) +
                       parse_int<std::int64_t>(fields[12]).value_or(0);
    out.cpu_ms = ticks * 1000 / ::sysconf(_SC_CLK_TCK);
    out.threads = parse_int<int>(fields[17]).value_or(0);
  }
  const std::string channel = text_of(folder + "/wchan");
  if (!channel.empty() && channel != "0") out.state += " " + channel;
  return out;
}

}  // namespace hora::launcher
