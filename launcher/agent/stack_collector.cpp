// SPDX-License-Identifier: Apache-2.0
// Asks every process of every rank where it is. Python's faulthandler answers over an abstract Unix
// socket that each interpreter keeps open; libhora's signal handler answers through shared memory.
// The collector merges both, with names for the native frames.
#include "launcher/agent/stack_collector.h"

#include <dirent.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/agent/rank_samples.h"
#include "launcher/process/process_table.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/local_socket.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostPeers = 512;
constexpr std::size_t kMostStackText = 64 * 1024;  // of one process
// Limits one turn of the loop: more may arrive than it can take, and the job needs its turn.
constexpr int kAcceptsPerTurn = 64;
constexpr int kReadsPerTurn = 16;
constexpr std::chrono::milliseconds kQuiet{150};  // silence after which all has been said
constexpr std::chrono::milliseconds kLookAgain{25};
constexpr std::chrono::milliseconds kNaming{500};  // of the time limit, for names of native frames

std::string text_of(const std::string& path) {
  // The process may be gone by now; its file then reads as empty.
  const auto text = os::read_file(path);
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

// Kept away from the signals that programs use; the ranks learn it from their environment.
int StackCollector::signal_number() { return SIGRTMAX - 3; }

// Without a socket the job runs; its hang reports then lack the Python stacks. The random name
// keeps other users from guessing it.
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
      // No descriptor is left. The pending connection would be reported again and again.
      loop_.unwatch(listener_.get());
      listener_.reset();
      return;
    }
    // An abstract socket has no permissions, so check that the peer belongs to this user. The
    // kernel's answer also names the process, which cannot lie about it.
    const auto who = os::peer_of(fd.get());
    if (peers_.size() >= kMostPeers || !who || who->uid != ::geteuid()) continue;
    const int number = fd.get();
    if (!loop_.watch(number, EPOLLIN, [this, number](std::uint32_t) { on_readable(number); }))
      continue;
    Peer& peer = peers_[number];
    peer.fd = std::move(fd);
    peer.pid = who->pid;
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
      last_received_ = Clock::now();
      // Text that nothing has asked for is dropped.
      if (peer.asked && peer.text.size() < kMostStackText)
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

// One round at a time. Ends when every process has answered and is silent, or at the deadline.
void StackCollector::collect(std::vector<RankProcess> ranks, FlightRecords& records,
                             Milliseconds timeout, std::function<void(StackReport)> done) {
  if (done_) return done({});
  ranks_ = std::move(ranks);
  records_ = &records;
  done_ = std::move(done);
  if (timeout == Milliseconds(0)) return finish({});
  deadline_ = Clock::now() + timeout;
  last_received_ = Clock::now();
  // Native stacks first: a handler of this signal blocks the others, but a thread that is asked
  // inside Python's handler would show that handler instead of its own work.
  for (const RankProcess& rank : ranks_) native_.ask(records, rank.pid);
  for (auto& [fd, peer] : peers_) {
    peer.text.clear();
    // It knows our name, which only the environment of this job's processes has.
    peer.rank = rank_of_process(peer.pid, ranks_, "");
    // An interpreter that is about to end has no handler any more, and its socket until the end.
    peer.asked = peer.rank >= 0 && handles_signal(peer.pid, signal_number()) &&
                 ::kill(peer.pid, signal_number()) == 0;
  }
  look_again();
}

void StackCollector::look_again() {
  const auto now = Clock::now();
  bool all_answered = native_.all_answered(*records_);
  bool any_asked = false;
  for (const auto& [fd, peer] : peers_) {
    all_answered &= !peer.asked || !peer.text.empty();
    any_asked |= peer.asked;
  }
  // A stack arrives in several writes without an end mark, so a moment of silence ends it.
  const bool quiet = !any_asked || now - last_received_ >= kQuiet;
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
                 // Processes without a merged text keep their Python text.
                 stacks.insert(said.begin(), said.end());
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
    own.cpu_ms = usage_of_tree(rank.pid).cpu_ms;
    own.stacks = text_of_process(rank.pid);
    if (const auto standing = records_->standing_of(rank.rank))
      own.standing = collective_standing(*standing);
    report.processes.push_back(std::move(own));
    // Child processes of a rank (data loaders, say) follow their leader.
    for (auto& [fd, peer] : peers_) {
      if (!peer.asked || peer.pid == rank.pid || peer.rank != rank.rank) continue;
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
  const auto process = parse_process_stat(stat);
  if (!process) {
    out.state = "gone";
    return out;
  }
  // The name is in parentheses and may contain ')' and blanks, so search from the right.
  const std::size_t name = stat.find('(') + 1;
  out.program = stat.substr(name, stat.rfind(')') - name);
  out.state = process->state;
  out.threads = process->threads;
  // wchan names the kernel function that the process sleeps in; 0 means that it runs.
  const std::string channel = text_of(folder + "/wchan");
  if (!channel.empty() && channel != "0") out.state += " " + channel;
  return out;
}

}  // namespace hora::launcher
