#include "launcher/agent/stack_collector.h"

#include <dirent.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/process/process_table.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/abstract_address.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostPeers = 512;
constexpr std::size_t kMostText = 64 * 1024;  // of one process
// Then the job has its turn: more may come than can be taken.
constexpr int kAcceptsPerTurn = 64;
constexpr int kReadsPerTurn = 16;
constexpr std::chrono::milliseconds kQuiet{150};  // silence after which all has been said
constexpr std::chrono::milliseconds kLookAgain{25};
constexpr std::chrono::milliseconds kNaming{500};  // of the patience, for names of native frames

std::string text_of(const std::string& path) {
  const auto text = os::read_file(path);  // of a process that may be gone by now
  return text ? *text : std::string();
}

CollectiveStanding collective_standing(const rendezvous::FlightStanding& flight) {
  using rendezvous::FlightState;
  constexpr std::int64_t kMillisecond = 1'000'000;
  CollectiveStanding standing;
  standing.state = flight.state == FlightState::kJoining   ? "joining"
                   : flight.state == FlightState::kRunning ? "joined"
                                                           : "left";
  standing.for_ms = flight.for_ns / kMillisecond;
  standing.process_sets = static_cast<std::int64_t>(flight.process_sets);
  standing.last = flight.last;
  standing.last_ended_ms = flight.last_ended_ns / kMillisecond;
  for (const auto& operation : flight.operations) {
    standing.operations.push_back({operation.text, operation.running,
                                   operation.for_ns / kMillisecond, operation.process_set});
  }
  return standing;
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
  const os::AbstractAddress address(name);
  if (::bind(fd.get(), address.get(), address.size()) != 0 || ::listen(fd.get(), 128) != 0 ||
      !loop_.watch(fd.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); })) {
    return name_;
  }
  listener_ = std::move(fd);
  name_ = name;
  return name_;
}

void StackCollector::on_connection() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
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
        ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 ||
        who.uid != ::geteuid()) {
      continue;
    }
    const int number = fd.get();
    if (!loop_.watch(number, EPOLLIN, [this, number](std::uint32_t) { on_readable(number); }))
      continue;
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
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      last_heard_ = os::Clock::now();
      // What nobody has asked for is thrown away.
      if (peer.asked && peer.text.size() < kMostText)
        peer.text.append(bytes, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    loop_.unwatch(fd);
    peers_.erase(found);
    return;
  }
}

void StackCollector::collect(std::vector<RankProcess> ranks, FlightRecords& records,
                             Milliseconds patience, std::function<void(StackReport)> done) {
  if (done_) return done({});
  ranks_ = std::move(ranks);
  records_ = &records;
  done_ = std::move(done);
  deadline_ = os::Clock::now() + patience;
  last_heard_ = os::Clock::now();
  // First: a handler of this signal lets no other in, but a thread that is asked within Python's
  // handler shows that one in the place of what it was doing.
  for (const RankProcess& rank : ranks_) native_.ask(records, rank.pid);
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
  bool all_answered = native_.all_answered(*records_);
  bool any_asked = false;
  for (const auto& [fd, peer] : peers_) {
    all_answered &= !peer.asked || !peer.text.empty();
    any_asked |= peer.asked;
  }
  const bool quiet = !any_asked || now - last_heard_ >= kQuiet;
  if (now >= deadline_ - kNaming || (all_answered && quiet)) return name_stacks();
  timer_ = loop_.call_after(kLookAgain, [this] { look_again(); });
}

void StackCollector::name_stacks() {
  timer_ = 0;
  std::map<pid_t, std::string> said;
  for (auto& [fd, peer] : peers_) {
    if (peer.asked) said[peer.pid] = peer.text;
  }
  native_.name(*records_, said, deadline_,
               [this, said](const std::map<pid_t, std::string>& merged) {
                 auto stacks = merged;
                 stacks.insert(said.begin(), said.end());  // where there is no merged one
                 finish(stacks);
               });
}

void StackCollector::finish(const std::map<pid_t, std::string>& stacks) {
  StackReport report;
  const auto text_of_process = [&](pid_t pid) {
    const auto found = stacks.find(pid);
    return found == stacks.end() ? std::string() : found->second;
  };
  for (const RankProcess& rank : ranks_) {
    ProcessStacks own = describe(rank.rank, rank.pid);
    own.leader = true;
    own.stacks = text_of_process(rank.pid);
    if (const auto standing = records_->standing_of(rank.rank))
      own.standing = collective_standing(*standing);
    report.processes.push_back(std::move(own));
    for (auto& [fd, peer] : peers_) {
      if (!peer.asked || peer.pid == rank.pid || ::getsid(peer.pid) != rank.pid) continue;
      report.processes.push_back(describe(rank.rank, peer.pid));
      report.processes.back().stacks = text_of_process(peer.pid);
    }
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
