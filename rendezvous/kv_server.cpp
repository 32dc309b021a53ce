// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_server.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <unordered_map>

#include "rendezvous/http/writer.h"
#include "rendezvous/kv_connection.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/unauthenticated_peers.h"

namespace hora::rendezvous {

// Connections are background watches of the loop: they run after everything else that is ready, a
// bounded number per turn (docs/decisions/0020). Each handler does one connection's turn;
// kv_connection.cpp bounds its work.

namespace {

using Fate = KvConnection::Fate;

constexpr std::size_t kReadBytes = 128 * 1024;
// How many connections are accepted, and for how long, before others get their turn: under TLS each
// may cost a signature.
constexpr int kAcceptBatch = 64;
constexpr std::chrono::milliseconds kAcceptTime{2};
// How long accepting pauses when no descriptor is left, unless a connection ends earlier.
constexpr std::chrono::milliseconds kAcceptRest{100};
// How many connections are closed at once to make room, and how long one must have been idle, or
// sending its request's head, before it may be closed: a new connection is about to send it.
constexpr std::size_t kEvictBatch = 64;
constexpr std::chrono::seconds kEvictAge{1};
constexpr std::size_t kMostConnections = 16'384;

std::size_t connection_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kMostConnections;
  }
  const auto files = static_cast<std::size_t>(limit.rlim_cur);
  // Half of a small limit, 256 of a large one, stays for the rest of the process.
  const std::size_t others = std::min<std::size_t>(files / 2, 256);  // the owner's own files
  return std::clamp<std::size_t>(files - others, 1, kMostConnections);
}

// All addresses must get the same port; a port that is free on one may be taken on another, so try
// a few.
Result<std::vector<os::Fd>> listen_on_all(std::vector<Endpoint>& addresses) {
  constexpr int kTries = 16;
  for (int attempt = 1;; ++attempt) {
    std::vector<os::Fd> listeners;
    std::vector<Endpoint> bound;
    std::uint16_t shared_port = 0;
    for (Endpoint endpoint : addresses) {
      const bool any_port = endpoint.port == 0;
      if (any_port) endpoint.port = shared_port;
      auto fd = net::listen_tcp(endpoint);
      if (!fd) {
        if (any_port && shared_port != 0 && attempt < kTries) break;
        return std::move(fd).error();
      }
      auto where = net::local_endpoint(fd->get());
      if (!where) return std::move(where).error();
      if (any_port) shared_port = where->port;
      listeners.push_back(std::move(*fd));
      bound.push_back({endpoint.address, where->port});
    }
    if (listeners.size() < addresses.size()) continue;
    addresses = std::move(bound);
    return listeners;
  }
}

}  // namespace

class KvServer::Impl {
 public:
  Impl(os::EventLoop& loop, KvService& service, KvServerOptions options,
       std::vector<os::Fd> listeners)
      : loop_(loop),
        service_(service),
        options_(std::move(options)),
        listeners_(std::move(listeners)),
        context_{service, options_} {
    if (options_.max_connections == 0) options_.max_connections = connection_limit();
    // At least half of the places are for authenticated clients.
    options_.max_unauthenticated =
        std::clamp<std::size_t>(options_.max_connections / 2, 1, options_.max_unauthenticated);
  }

  ~Impl() {
    for (const os::Fd& listener : listeners_) loop_.unwatch(listener.get());
    // The handlers refer to this object.
    loop_.cancel(sweep_timer_);
    loop_.cancel(wait_timer_);
    loop_.cancel(accept_timer_);
    for (const auto& [id, connection] : connections_) loop_.unwatch(connection->fd());
  }

  Status start() {
    for (const os::Fd& listener : listeners_) {
      const int fd = listener.get();
      HORA_TRY(watch_listener(fd, EPOLLIN));
    }
    return Ok{};
  }

  Status listen_also(const IpAddress& address) {
    for (const Endpoint& known : options_.addresses) {
      if (known.address == address) return Ok{};
    }
    const Endpoint wanted{address, options_.addresses.front().port};
    auto listener = net::listen_tcp(wanted);
    if (!listener) return std::move(listener).error().with_context("rendezvous");
    const int fd = listener->get();
    // While accepting rests, a new listener rests as well; resume_accepting() wakes all of them.
    HORA_TRY(watch_listener(fd, resting_ ? 0U : std::uint32_t{EPOLLIN}));
    listeners_.push_back(std::move(*listener));
    options_.addresses.push_back(wanted);
    return Ok{};
  }

  const std::vector<Endpoint>& addresses() const { return options_.addresses; }

  void deliver() {
    begin_event();
    end_event();
  }

 private:
  // New connections get a short turn of their own after each batch of existing ones: a rank must
  // not wait for its connection until a whole crowd was served.
  Status watch_listener(int fd, std::uint32_t events) {
    return loop_.watch(fd, events, [this, fd](std::uint32_t) { on_listener(fd); });
  }

  // Every entry from the loop is between these two.
  void begin_event() {
    context_.now = Clock::now();
    const std::time_t second = std::time(nullptr);
    if (second == date_second_) return;
    date_second_ = second;
    context_.date = http::format_date(second);
  }
  void end_event() {
    // A reply that is delivered may let the same client send its next request, which may complete
    // further waits.
    while (service_.has_ready()) {
      for (const KvService::Ready& ready : service_.take_ready()) {
        const auto found = connections_.find(ready.client);
        // Closed meanwhile.
        if (found == connections_.end()) continue;
        settle(*found->second, found->second->on_ready(ready.reply));
      }
    }
    arm_wait_timer();
    arm_sweep_timer();
  }

  void on_listener(int listener) {
    begin_event();
    const auto until = context_.now + kAcceptTime;
    for (int i = 0; i < kAcceptBatch && (i == 0 || Clock::now() < until); ++i) {
      if (connections_.size() >= options_.max_connections) {
        if (i > 0) break;  // if more are waiting, the loop comes back at once
        if (!make_room()) {
          rest_from_accepting();
          break;
        }
      }
      auto accepted = net::accept_tcp(listener);
      if (!accepted) {
        // No descriptor or no memory. The connection waits in the backlog.
        if (!make_room()) {
          rest_from_accepting();
          break;
        }
        continue;
      }
      // The backlog is empty.
      if (!*accepted) break;
      add_connection(std::move(**accepted));
    }
    end_event();
  }

  void add_connection(net::Accepted accepted) {
    // With the first connection: many programs do not use a rendezvous, and clearing the memory
    // costs a launch more than the listener.
    if (context_.scratch.empty()) context_.scratch.resize(kReadBytes);
    // Ids are never reused, so a late reply cannot reach another client.
    const KvService::ClientId id = next_id_++;
    auto stream = options_.make_stream ? options_.make_stream(std::move(accepted.fd))
                                       : std::make_unique<net::Stream>(std::move(accepted.fd));
    auto connection =
        std::make_unique<KvConnection>(std::move(stream), accepted.peer.address, id, context_);
    KvConnection& added = *connection;
    connections_.emplace(id, std::move(connection));
    ConnectionFigures& figures = service_.connections();
    ++figures.accepted;
    figures.open = connections_.size();
    // The request has often arrived already; a connection that also closes needs no watch at all.
    settle(added, added.on_events(EPOLLIN));
    evict_unauthenticated();
  }

  void on_connection(KvConnection& connection, std::uint32_t events) {
    begin_event();
    settle(connection, connection.on_events(events));
    evict_unauthenticated();
    end_event();
  }

  // Destroys the connection, or updates its watch.
  void settle(KvConnection& connection, Fate fate) {
    if (fate == Fate::kKeep && watch(connection)) {
      note_unauthenticated(connection, connection.unauthenticated());
      return;
    }
    note_unauthenticated(connection, false);
    if (connection.notes.watched) loop_.unwatch(connection.fd());
    connections_.erase(connection.id());
    service_.connections().open = connections_.size();
    if (resting_) resume_accepting();
  }

  void note_unauthenticated(KvConnection& connection, bool is_one) {
    if (std::exchange(connection.notes.among_unauthenticated, is_one) == is_one) return;
    if (is_one) {
      unauthenticated_.add(connection.id(), connection.peer());
    } else {
      unauthenticated_.remove(connection.id(), connection.peer());
    }
  }

  // Each costs at most 18 KB, or 50 KB with a TLS session. Without this limit, any client could
  // take all connections.
  void evict_unauthenticated() {
    while (unauthenticated_.size() > options_.max_unauthenticated) evict_one_unauthenticated();
  }
  void evict_one_unauthenticated() {
    settle(*connections_.at(*unauthenticated_.first_to_go()), Fate::kClose);
    ++service_.connections().evicted;
  }

  bool watch(KvConnection& connection) {
    const std::uint32_t events = connection.wanted_events();
    if (connection.notes.watched && connection.notes.watched_events == events) return true;
    // The system call is made only on a change: most requests need none.
    connection.notes.watched_events = events;
    if (connection.notes.watched) return loop_.change(connection.fd(), events).has_value();
    KvConnection* const raw = &connection;
    // Any client can send bytes there, so everything else that the loop has to do comes first.
    const Status status = loop_.watch(
        connection.fd(), events, [this, raw](std::uint32_t now) { on_connection(*raw, now); },
        os::EventLoop::Priority::kBackground);
    connection.notes.watched = status.has_value();
    return connection.notes.watched;
  }

  // Unauthenticated clients are closed first: one of a crowd, or those that have been silent
  // longest. Then the connections that have idled longest, those that take longest to send their
  // request, and those that have waited longest for a key (the new client may bring it). False when
  // none can be closed.
  bool make_room() {
    if (unauthenticated_.size() >= options_.max_unauthenticated) {
      evict_one_unauthenticated();
      return true;
    }
    const auto silent = [this](const KvConnection& connection) {
      return connection.unauthenticated() && context_.now >= connection.last_active() + kEvictAge;
    };
    const auto idle = [this](const KvConnection& connection) {
      return connection.idle() && context_.now >= connection.last_active() + kEvictAge;
    };
    const auto slow = [this](const KvConnection& connection) {
      return connection.in_head() && context_.now >= connection.message_start() + kEvictAge;
    };
    const auto parked = [](const KvConnection& connection) { return connection.parked(); };
    std::vector<KvConnection*> leaving = oldest(silent);
    if (leaving.empty()) leaving = oldest(idle);
    if (leaving.empty()) leaving = oldest(slow);
    if (leaving.empty()) leaving = oldest(parked);
    for (KvConnection* connection : leaving) settle(*connection, connection->give_way());
    service_.connections().evicted += leaving.size();
    return !leaving.empty();
  }

  template <typename Choice>
  std::vector<KvConnection*> oldest(Choice choice) const {
    std::vector<KvConnection*> chosen;
    for (const auto& [id, connection] : connections_) {
      if (choice(*connection)) chosen.push_back(connection.get());
    }
    // An eighth at a time, at most a batch: sorting all connections for each new client would be an
    // attack in itself.
    const std::size_t count = std::min(kEvictBatch, (chosen.size() + 7) / 8);
    std::partial_sort(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(count),
                      chosen.end(), [](const KvConnection* a, const KvConnection* b) {
                        return a->last_active() < b->last_active();
                      });
    chosen.resize(count);
    return chosen;
  }

  void rest_from_accepting() {
    if (resting_) return;
    resting_ = true;
    for (const os::Fd& listener : listeners_) (void)loop_.change(listener.get(), 0);
    accept_timer_ = loop_.call_after(kAcceptRest, [this] {
      accept_timer_ = 0;
      resume_accepting();
    });
  }
  void resume_accepting() {
    if (!resting_) return;
    resting_ = false;
    loop_.cancel(std::exchange(accept_timer_, 0));
    for (const os::Fd& listener : listeners_) (void)loop_.change(listener.get(), EPOLLIN);
  }

  void arm_wait_timer() {
    const auto deadline = service_.next_deadline();
    // An earlier timer may stay: it finds nothing due and sets the next one.
    if (!deadline || (wait_timer_ != 0 && wait_timer_at_ <= *deadline)) return;
    loop_.cancel(wait_timer_);
    wait_timer_at_ = *deadline;
    wait_timer_ = loop_.call_at(*deadline, [this] {
      wait_timer_ = 0;
      begin_event();
      service_.expire(context_.now);
      end_event();
    });
  }

  void arm_sweep_timer() {
    // One coarse timer for all connections instead of one each; without connections the loop
    // sleeps.
    if (sweep_timer_ != 0 || connections_.empty()) return;
    sweep_timer_ = loop_.call_after(options_.sweep_interval, [this] {
      sweep_timer_ = 0;
      begin_event();
      sweep();
      end_event();
    });
  }

  void sweep() {
    std::vector<KvConnection*> all;
    all.reserve(connections_.size());
    // A copy, because settle() removes connections.
    for (const auto& [id, connection] : connections_) all.push_back(connection.get());
    for (KvConnection* connection : all) settle(*connection, connection->on_sweep());
  }

  os::EventLoop& loop_;
  KvService& service_;
  KvServerOptions options_;
  std::vector<os::Fd> listeners_;
  KvConnectionContext context_;
  std::unordered_map<KvService::ClientId, std::unique_ptr<KvConnection>> connections_;
  UnauthenticatedPeers unauthenticated_;
  KvService::ClientId next_id_ = 1;
  std::time_t date_second_ = -1;
  os::EventLoop::TimerId sweep_timer_ = 0;
  os::EventLoop::TimerId accept_timer_ = 0;
  os::EventLoop::TimerId wait_timer_ = 0;
  Clock::time_point wait_timer_at_{};
  bool resting_ = false;
};

Result<std::unique_ptr<KvServer>> KvServer::start(os::EventLoop& loop, KvService& service,
                                                  KvServerOptions options) {
  if (options.addresses.empty()) {
    return make_error(ErrorCode::kUsage, "rendezvous: no address to listen on");
  }
  auto listeners = listen_on_all(options.addresses);
  if (!listeners) return std::move(listeners).error().with_context("rendezvous");
  auto impl = std::make_unique<Impl>(loop, service, std::move(options), std::move(*listeners));
  if (auto status = impl->start(); !status) {
    return std::move(status).error().with_context("rendezvous");
  }
  return std::unique_ptr<KvServer>(new KvServer(std::move(impl)));
}

KvServer::KvServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvServer::~KvServer() = default;
const std::vector<Endpoint>& KvServer::addresses() const { return impl_->addresses(); }
Status KvServer::listen_also(const IpAddress& address) { return impl_->listen_also(address); }
void KvServer::deliver() { impl_->deliver(); }

}  // namespace hora::rendezvous
