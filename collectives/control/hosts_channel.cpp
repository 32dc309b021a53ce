// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/hosts_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "collectives/control/keyed_gathering.h"
#include "collectives/negotiation/wire.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/net/tcp_state.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives {

// Shared memory of a host: one Sleeper per rank, then the fast path's memory.
// A sleeper blocks in poll(), so a pipe replaces the futex of ring_channel.cpp; the protocol is the
// same. The sleeper stores `asleep`, issues a seq_cst fence and looks once more; the caller
// publishes, issues a seq_cst fence and loads `asleep`. At least one of them sees the other's
// store.

struct alignas(128) HostsChannel::Sleeper {
  std::atomic<std::uint32_t> asleep;  // 1: a caller has to write into its pipe
  CpuOfRank cpu;
};

namespace {

// poll() with a resolution of nanoseconds: poll()'s milliseconds are too coarse for these waits.
int wait_for(pollfd* fds, nfds_t count, Deadline deadline) {
  if (deadline == Deadline::max()) return ::ppoll(fds, count, nullptr, nullptr);
  const timespec relative = os::timespec_until(deadline);
  return ::ppoll(fds, count, &relative, nullptr);
}

}  // namespace

std::size_t HostsChannel::memory_bytes(const LeaderPlan& plan) {
  return plan.here().size() * sizeof(Sleeper) + LeaderFastPath::memory_bytes(plan);
}

HostsChannel::HostsChannel(HostsParts parts)
    : owner_(std::move(parts.links)),
      links_(owner_->sockets()),
      segment_(std::move(parts.segment)),
      sleepers_(static_cast<Sleeper*>(segment_.data())),
      place_(parts.plan.place),
      doorbells_(std::move(parts.doorbells)),
      thread_doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      runtime_epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  spinner_.enable(parts.spin);
  spread_.enable(parts.spin);
  fast_path_.emplace(
      std::move(parts.plan), sleepers_ + doorbells_.size(), [this](int place) { call(place); },
      [this](int host, std::string_view bytes) { links_->send(leader_peer(host), bytes); });
  // The channel's epoll set contains the pipe, so one descriptor (waiting_fd()) covers everything;
  // runtime_epoll_ contains that set in turn.
  links_->watch_doorbell(std::move(parts.doorbell));
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(runtime_epoll_.get(), EPOLL_CTL_ADD, links_->waiting_fd(), &event);
}

// Wakes the rank if it sleeps. Either it sees what was published before when it looks once more
// before it sleeps, or this thread sees that it sleeps.
void HostsChannel::call(int place) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& asleep = sleepers_[place].asleep;
  if (asleep.load(std::memory_order_relaxed) == 0) return;
  if (asleep.exchange(0, std::memory_order_acq_rel) == 0) return;
  // EAGAIN: the pipe is full, so a ring is pending. EPIPE cannot happen: this end is open for
  // reading as well.
  [[maybe_unused]] const ssize_t ignored =
      ::write(doorbells_[static_cast<std::size_t>(place)].get(), "!", 1);
}

// Separates the two kinds of peers: messages of ranks go to the caller, those of other leaders to
// the fast path.
void HostsChannel::sort(std::vector<Incoming> came, std::vector<Incoming>& messages) {
  for (Incoming& each : came) {
    if (each.rank < kFirstLeader) {
      messages.push_back(std::move(each));
      continue;
    }
    const int host = each.rank - kFirstLeader;
    if (each.gone) {
      fast_path_->lost_leader(host, std::move(each.bytes));
    } else {
      fast_path_->arrived(host, std::move(each.bytes));
    }
  }
}

std::vector<Incoming> HostsChannel::poll(Deadline deadline) {
  std::vector<Incoming> messages;
  while (true) {
    const bool woken =
        // The plain load spares the exchange, which takes the cache line, in the usual case.
        woken_.load(std::memory_order_relaxed) && woken_.exchange(false, std::memory_order_acq_rel);
    sort(links_->poll(kNoWait), messages);
    if (woken || !messages.empty() || deadline == kNoWait || fast_path_->has_work())
      return messages;
    if (Clock::now() >= deadline) return messages;
    if (!watch() && park(waiter_)) sleep(waiter_, 0, deadline);
    unpark();
  }
}

void HostsChannel::wake() {
  // Release pairs with the exchange in poll(). The eventfd makes the sockets readable, so `asleep`
  // plays no part here.
  woken_.store(true, std::memory_order_release);
  links_->wake();
}

bool HostsChannel::something_came() {
  return fast_path_->has_work() || woken_.load(std::memory_order_acquire);
}

bool HostsChannel::sockets_are_readable() const {
  pollfd sockets{links_->waiting_fd(), POLLIN, 0};
  return ::poll(&sockets, 1, 0) > 0;
}

bool HostsChannel::watch() {
  return spinner_.until([this] { return something_came() || sockets_are_readable(); });
}

bool HostsChannel::park(Waiter) {
  std::atomic<std::uint32_t>& asleep = sleepers_[place_].asleep;
  asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!something_came()) return true;
  unpark();
  return false;
}

void HostsChannel::unpark() { sleepers_[place_].asleep.store(0, std::memory_order_relaxed); }

// A caller watches the sockets itself. The runtime's thread watches them through runtime_epoll_,
// which is empty while a caller drives; its eventfd then still wakes it.
void HostsChannel::sleep(Waiter waiter, std::uint32_t, Deadline deadline) {
  if (waiter == Waiter::kCaller) {
    pollfd sockets{links_->waiting_fd(), POLLIN, 0};
    wait_for(&sockets, 1, deadline);
    return spread();  // a caller sleeps while it drives
  }
  pollfd both[2] = {{thread_doorbell_.get(), POLLIN, 0}, {runtime_epoll_.get(), POLLIN, 0}};
  wait_for(both, 2, deadline);
  if (both[0].revents == 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(thread_doorbell_.get(), &count, sizeof count);
}

void HostsChannel::spread() {
  spread_.woken([this](int place) -> CpuOfRank& { return sleepers_[place].cpu; },
                static_cast<int>(doorbells_.size()), place_, spinner_.successes());
}

void HostsChannel::ring(Waiter waiter) {
  if (waiter == Waiter::kCaller) return links_->wake();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(thread_doorbell_.get(), &one, sizeof one);
}

void HostsChannel::set_driver(Waiter waiter) {
  if (waiter == waiter_) return;
  waiter_ = waiter;
  epoll_event event{};
  // With no events the set stays silent: a sleeping thread must not wake for sockets that the
  // caller serves.
  if (waiter == Waiter::kThread) event.events = EPOLLIN;
  epoll_ctl(runtime_epoll_.get(), EPOLL_CTL_MOD, links_->waiting_fd(), &event);
}

// Where the doorbells of the others are and where the leaders listen, each rank knows from the
// cards that all have got when they met. Each host sets up its shared memory, the leaders connect,
// and one vote of all says whether everything is there. An exchange of all takes a round trip to
// rank 0, so there is only that one. A rank that fails still takes part, so that no other rank
// waits for it.

namespace {

// How long the others wait, once and at the start, for a leader that cannot be reached.
constexpr std::chrono::milliseconds kTimeout{10'000};

// Where the others on a rank's host find its pipe.
struct Doorbell {
  std::int64_t pid = 0;
  std::int64_t fd = -1;
  std::int64_t pipe = 0;  // the inode number of the pipe
};

// The data that a rank sends to all others.
struct LeaderContact {
  std::string endpoint;  // where a leader listens
  std::string key;       // and what its peers begin with there
  std::string error;
  Doorbell doorbell;
};

std::string encode(const LeaderContact& card) {
  WireWriter out;
  out.text(card.endpoint);
  out.text(card.key);
  out.text(card.error);
  out.integer(card.doorbell.pid);
  out.integer(card.doorbell.fd);
  out.integer(card.doorbell.pipe);
  return out.take();
}

LeaderContact decode_card(std::string_view bytes) {
  WireReader in(bytes);
  LeaderContact card;
  card.endpoint = in.text();
  card.key = in.text();
  card.error = in.text();
  card.doorbell.pid = in.integer();
  card.doorbell.fd = in.integer();
  card.doorbell.pipe = in.integer();
  if (!in.ok()) card.error = "malformed card of a rank";
  return card;
}

// 0 stands for "not a pipe".
std::int64_t pipe_number(int fd) {
  struct stat status {};
  const bool is_pipe = fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
  return is_pipe ? static_cast<std::int64_t>(status.st_ino) : 0;
}

Status open_sockets(const std::string& host_address, bool may_lead, OwnSockets& sockets,
                    LeaderContact& card) {
  if (!sockets.doorbell.open(O_NONBLOCK)) return errno_error(errno, "creating a pipe");
  const int write_end = sockets.doorbell.write_end.get();
  card.doorbell = {getpid(), write_end, pipe_number(write_end)};
  if (!may_lead) return Ok{};
  auto address = parse_ip_address(host_address);
  if (!address) return std::move(address).error();
  auto listener = open_control_listener(*address);
  if (!listener) return std::move(listener).error();
  auto endpoint = net::local_endpoint(listener->get());
  if (!endpoint) return std::move(endpoint).error();
  card.endpoint = format_endpoint(*endpoint);
  card.key = os::random_token();
  sockets.listener = std::move(*listener);
  return Ok{};
}

// Opens another rank's pipe by way of /proc. Opened for reading, too, so that writing into the pipe
// of a rank that is gone raises no SIGPIPE.
Result<os::Fd> open_doorbell(const Doorbell& doorbell) {
  const std::string path =
      "/proc/" + std::to_string(doorbell.pid) + "/fd/" + std::to_string(doorbell.fd);
  os::Fd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    Error error = errno_error(errno, "opening " + path);
    error.code = ErrorCode::kUnavailable;
    return error;
  }
  // In another PID namespace the same path may name a different process: compare the inode number.
  if (pipe_number(fd.get()) == doorbell.pipe) return fd;
  return make_error(ErrorCode::kUnavailable, path + " is not the pipe of that rank");
}

Status set_up_here(const HostsBootstrap& bootstrap, const std::vector<LeaderContact>& cards,
                   HostsParts& parts) {
  const LeaderPlan& plan = parts.plan;
  const std::size_t bytes = HostsChannel::memory_bytes(plan);
  // A rank alone on its host needs no sharing, only the same layout.
  const bool alone = plan.here().size() == 1;
  auto segment = alone ? Segment::open_private(bytes)
                       : Segment::open(plan.here(), plan.place, bytes, bootstrap.here);
  if (!segment) return std::move(segment).error();
  parts.segment = std::move(*segment);
  for (const std::int32_t rank : plan.here()) {
    auto doorbell = open_doorbell(cards[static_cast<std::size_t>(rank)].doorbell);
    if (!doorbell) return std::move(doorbell).error();
    parts.doorbells.push_back(std::move(*doorbell));
  }
  return Ok{};
}

using Links = std::vector<std::pair<int, std::unique_ptr<ControlChannel>>>;  // by host

// A leader connects to its peers with lower host numbers, to all at once, and awaits those with
// higher ones.
Status connect_leaders(const HostsBootstrap& bootstrap, const LeaderPlan& plan,
                       const std::vector<LeaderContact>& cards, Links& links) {
  const Deadline deadline = Clock::now() + std::min(kTimeout, bootstrap.timeout / 2);
  const auto card_of = [&](int host) -> const LeaderContact& {
    return cards[static_cast<std::size_t>(plan.leader_of(host))];
  };
  std::map<int, os::Fd> sockets;
  KeyedGathering gathering;
  for (const int host : plan.peers) {
    if (host > plan.host) {
      gathering.awaited.insert(host);
      continue;
    }
    auto where = parse_endpoint(card_of(host).endpoint);
    if (!where) return std::move(where).error();
    auto socket = net::begin_connect_tcp(*where, deadline);
    if (!socket) return std::move(socket).error();
    sockets[host] = std::move(*socket);
  }
  for (auto& [host, socket] : sockets) {
    const std::string what = "connecting to the first rank of host " + std::to_string(host) +
                             " at " + card_of(host).endpoint;
    if (Status ready = net::wait_writable(socket.get(), deadline, what); !ready) return ready;
    const auto where = parse_endpoint(card_of(host).endpoint);
    if (Status done = net::end_connect_tcp(socket.get(), *where); !done) {
      return std::move(done).error().with_context(what);
    }
    HORA_TRY(greet(socket.get(), card_of(host).key, plan.host, deadline));
  }
  gathering.listener = bootstrap.own.listener.get();
  gathering.key = card_of(plan.host).key;
  gathering.deadline = deadline;
  gathering.broken_off = bootstrap.broken_off;
  auto came = gathering.run();
  if (!came)
    return std::move(came).error().with_context("waiting for the first ranks of other hosts");
  sockets.merge(*came);
  for (auto& [host, socket] : sockets) {
    auto one = std::make_unique<TcpChannel>();
    HORA_TRY(one->add_peer(0, std::move(socket), {}));
    links.emplace_back(host, std::move(one));
  }
  return Ok{};
}

// The kernel treats a peer without buffer space for TCP_USER_TIMEOUT as dead, even if it answers.
// So everything that another leader may send without an answer from this process, which may be
// stopped or busy elsewhere, has to fit. The kernel counts its own records, too, so this is twice
// as much. Without this setting it may keep the window that the connection began with.
void make_room_for_unread(const Links& leaders) {
  const int bytes = static_cast<int>(2 * LeaderFastPath::kMostRoom);
  for (const auto& [host, channel] : leaders) {
    for (const int fd : channel->liveness_fds()) {
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
      setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &bytes, sizeof bytes);
    }
  }
}

// Over the leaders' connections, which are established by now. 0 on other ranks.
std::chrono::microseconds longest_round_trip(const Links& leaders) {
  std::chrono::microseconds longest{0};
  for (const auto& [host, channel] : leaders) {
    for (const int fd : channel->liveness_fds()) {
      longest = std::max(longest, net::least_round_trip(fd).value_or(longest));
    }
  }
  return longest;
}

// Sends this one's outcome to all ranks and returns the first failure, which is the same
// everywhere, or else the longest round trip of all.
Result<std::chrono::microseconds> vote(
    const Allgather& all, const Status& mine,
    std::chrono::microseconds round_trip = std::chrono::microseconds(0)) {
  WireWriter out;
  out.text(mine ? std::string() : mine.error().message);
  out.integer(round_trip.count());
  auto votes = all(out.take());
  if (!votes) return std::move(votes).error();
  for (std::size_t rank = 0; rank < votes->size(); ++rank) {
    WireReader in((*votes)[rank]);
    std::string objection = in.text();
    round_trip = std::max(round_trip, std::chrono::microseconds(in.integer()));
    if (!in.ok()) objection = "malformed vote";
    if (objection.empty()) continue;
    return make_error(ErrorCode::kUnavailable, "rank " + std::to_string(rank) + ": " + objection);
  }
  return round_trip;
}

}  // namespace

// Not a failure: the error travels in the card, because the others count on it.
OwnSockets OwnSockets::open(const std::string& address, bool may_lead) {
  OwnSockets own;
  LeaderContact card;
  if (Status opened = open_sockets(address, may_lead, own, card); !opened) {
    card.error = opened.error().message;
  }
  own.card = encode(card);
  return own;
}

Status bootstrap_hosts(HostsBootstrap bootstrap, std::unique_ptr<ControlChannel>& links,
                       HostsParts& parts) {
  std::vector<LeaderContact> cards;
  for (const std::string& text : bootstrap.cards) cards.push_back(decode_card(text));
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (cards[rank].error.empty()) continue;
    return make_error(ErrorCode::kUnavailable,
                      "rank " + std::to_string(rank) + ": " + cards[rank].error);
  }
  Status mine = set_up_here(bootstrap, cards, parts);
  // Any other code comes from the exchange itself, after which a vote cannot work either.
  if (!mine && mine.error().code != ErrorCode::kUnavailable) return mine;
  Links leaders;
  // Also after a failure, since the peers wait for this one.
  if (parts.plan.leads()) {
    Status connected = connect_leaders(bootstrap, parts.plan, cards, leaders);
    if (mine) mine = std::move(connected);
    make_room_for_unread(leaders);
  }
  auto voted = vote(bootstrap.all, mine, longest_round_trip(leaders));
  if (!voted) return std::move(voted).error();
  parts.round_trip = *voted;
  // Only now, when all ranks have succeeded, does the star change.
  for (auto& [host, channel] : leaders) {
    HORA_TRY(links->sockets()->take_peer(*channel->sockets(), 0, HostsChannel::leader_peer(host)));
  }
  parts.doorbell = std::move(bootstrap.own.doorbell.read_end);
  parts.links = std::move(links);
  return Ok{};
}

}  // namespace hora::collectives
