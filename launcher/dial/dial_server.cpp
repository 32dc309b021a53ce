// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_server.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <future>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/little_endian.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/addresses.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/random.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::launcher {

namespace {

// That have not shown the token yet, besides one for each machine that the job waits for.
constexpr std::size_t kMostPending = 64;
constexpr auto kGreetingTimeout = std::chrono::seconds(10);
constexpr auto kGoodbyeTimeout = std::chrono::seconds(1);
constexpr std::size_t kMostAddresses = 4;  // in the URL

// An address for other machines. The kernel lists the interfaces in the order in which they were
// made, and the first one is usually that of the site's network.
Result<std::vector<JoinUrl::Address>> addresses_of(const Endpoint& bound) {
  if (!bound.address.is_unspecified()) {
    return std::vector<JoinUrl::Address>{{format_address(bound.address), bound.port}};
  }
  auto interfaces = net::list_interfaces();
  if (!interfaces) return std::move(interfaces).error();
  std::vector<JoinUrl::Address> v4, v6, bridges;
  for (const net::Interface& each : *interfaces) {
    if (!each.up || each.loopback || each.address.is_link_local()) continue;
    auto& kind = each.virtual_bridge ? bridges : each.address.v6 ? v6 : v4;
    kind.push_back({format_address(each.address), bound.port});
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  // Other machines may have a docker0 with the same address: it is named only where nothing else
  // is.
  if (v4.empty()) v4 = std::move(bridges);
  if (v4.empty()) v4.push_back({"127.0.0.1", bound.port});
  if (v4.size() > kMostAddresses) v4.resize(kMostAddresses);
  return v4;
}

}  // namespace

// --- the transport -------------------------------------------------------------------------------

// Its end gives up what the machines still run for it; they stay connected.
class DialServer::DialTransport : public Transport {
 public:
  DialTransport(DialServer& server, StageObserver observer)
      : server_(server), observer_(std::move(observer)) {}
  ~DialTransport() override {
    server_.run_on_loop([this] {
      while (!server_.hosts_.empty()) server_.forget(server_.hosts_.begin()->first);
    });
  }

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override {
    auto pair = make_supervisor_pair(host.name);
    if (!pair) return std::move(pair).error();
    AgentLinkOptions options;
    options.host = "host " + host.name;
    options.host_index = host_index;
    options.image = image;
    options.payloads = &server_.payloads_;
    options.observer = observer_;
    options.lost_class = failure::kHostLost;
    options.shell_class = failure::kRemoteShell;
    options.shell_advice = "try sh -c true on that machine";
    server_.threads_->loop(0).post([this, theirs = pair->transport, name = host.name,
                                    options = std::move(options), deadline]() mutable {
      server_.reach(name, std::move(*theirs), std::move(options), deadline);
    });
    return std::move(pair->supervisor);
  }

 private:
  DialServer& server_;
  StageObserver observer_;
};

std::unique_ptr<Transport> DialServer::transport(StageObserver observer) {
  return std::make_unique<DialTransport>(*this, std::move(observer));
}

DialServer::Peer* DialServer::find_peer(const std::string& name) const {
  for (const auto& [id, each] : peers_) {
    if (each->name == name) return each.get();
  }
  return nullptr;
}

bool DialServer::has(const std::string& name) const { return find_peer(name) != nullptr; }

// Without a machine of that name the host's link says so, as it does when a machine leaves later.
void DialServer::reach(const std::string& name, os::Fd local, AgentLinkOptions options,
                       Clock::time_point deadline) {
  Peer* const peer = find_peer(name);
  if (peer != nullptr) options.host += " (" + peer->address + ")";
  os::EventLoop& loop = threads_->loop(0);
  const HostId id = next_host_++;
  // A host asks for its removal from inside a call of its own, so the removal takes a turn of its
  // own.
  auto made = std::make_unique<JoinedHost>(
      loop, std::move(local), std::move(options), peer != nullptr ? peer->stream.get() : nullptr,
      peer != nullptr ? peer->next_number : 1, helpers_, deadline,
      [this, &loop, id] { loop.post([this, id] { forget(id); }); });
  JoinedHost* const host = made.get();
  hosts_[id] = std::move(made);
  if (peer != nullptr) peer->host = host;
  host->begin();
}

// The next command on that machine gets another number than any that this one has had.
void DialServer::forget(HostId id) {
  const auto found = hosts_.find(id);
  if (found == hosts_.end()) return;
  for (auto& [peer_id, peer] : peers_) {
    if (peer->host != found->second.get()) continue;
    peer->next_number = peer->host->number() + 1;
    peer->host = nullptr;
  }
  hosts_.erase(found);
}

// --- opening and closing -------------------------------------------------------------------------

DialServer::DialServer(DialRoster roster, Observer observer)
    : observer_(std::move(observer)), roster_(std::move(roster)) {}

Result<std::unique_ptr<DialServer>> DialServer::open(const Endpoint& where, DialRoster roster,
                                                     Observer observer, std::string_view key) {
  std::unique_ptr<DialServer> server(new DialServer(std::move(roster), std::move(observer)));
  server->stays_open_ = !key.empty();
  server->url_.token = key.empty() ? os::random_token() : token_of_key(key);
  auto side = tls::make_server_side(kCertificateName, key.empty() ? "" : seed_of_key(key));
  if (!side) return std::move(side).error();
  server->accept_ = std::move(side->accept);
  server->url_.fingerprint = std::move(side->fingerprint);
  HORA_TRY(server->listen(where));
  return server;
}

// The thread starts when the socket exists, and serves it before the URL is published.
Status DialServer::listen(const Endpoint& where) {
  auto listener = net::listen_tcp(where);
  if (!listener) return std::move(listener).error();
  auto bound = net::local_endpoint(listener->get());
  if (!bound) return std::move(bound).error();
  auto addresses = addresses_of(*bound);
  if (!addresses) return std::move(addresses).error();
  url_.addresses = std::move(*addresses);
  auto threads = IoThreads::start(1);
  if (!threads) return std::move(threads).error();
  threads_ = *std::move(threads);
  Status started = Ok{};
  run_on_loop([&] {
    acceptor_.emplace(threads_->loop(0), std::move(*listener),
                      [this](net::Accepted accepted) { admit(std::move(accepted)); });
    started = acceptor_->start();
  });
  return started;
}

// The order matters: all posting ends, then the loop stops, then this thread owns what is left.
DialServer::~DialServer() {
  if (!threads_) return;
  threads_->stop();
  for (auto& [id, peer] : peers_) {
    if (peer->host != nullptr) peer->host->on_lost("");
  }
  hosts_.clear();
  peers_.clear();
}

// The loop's thread never waits for this one, so this cannot lock up.
void DialServer::run_on_loop(std::function<void()> task) {
  std::promise<void> done;
  threads_->loop(0).post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

std::vector<Host> DialServer::hosts() {
  std::vector<Host> out;
  run_on_loop([&] { out = roster_.hosts(); });
  return out;
}

std::string DialServer::standing() {
  std::string out;
  run_on_loop([&] { out = roster_.standing(); });
  return out;
}

bool DialServer::say_goodbye(int exit_code) {
  run_on_loop([&] {
    close_door();
    std::vector<PeerId> pending;
    for (auto& [id, peer] : peers_) {
      if (peer->name.empty()) {
        pending.push_back(id);
        continue;
      }
      std::string payload;
      append_u32(payload, static_cast<std::uint32_t>(exit_code));
      peer->stream->listen(true);
      peer->stream->send(DialFrameType::kOver, payload);
    }
    for (const PeerId id : pending) drop(id);
  });
  // Closing with unread bytes resets the connection, and loses the last frame: so the machines hang
  // up.
  std::unique_lock lock(mutex_);
  return all_gone_.wait_for(lock, kGoodbyeTimeout, [this] { return connected_ == 0; });
}

// The kernel refuses new connections from now on, and --join explains what that means.
void DialServer::close_door() { acceptor_.reset(); }

// --- connections ---------------------------------------------------------------------------------

// TLS begins when a whole first message has arrived: silent connections cost a socket each.
void DialServer::admit(net::Accepted accepted) {
  std::vector<PeerId> pending;
  for (const auto& [id, peer] : peers_) {
    if (peer->name.empty()) pending.push_back(id);
  }
  if (pending.size() >= kMostPending + roster_.missing()) drop(pending.front());
  keep_alive(accepted.fd.get());
  const PeerId id = next_peer_++;
  auto peer = std::make_unique<Peer>();
  os::EventLoop& loop = threads_->loop(0);
  peer->address = format_address(accepted.peer.address);
  peer->stream = std::make_unique<DialStream>(
      loop, accept_(std::move(accepted.fd)), kLargestJoin,
      DialStream::Handlers{[this, id](const DialFrame& frame) { on_frame(id, frame); },
                           [this, id](const std::string& why) { on_end(id, why); },
                           [this, id] {
                             Peer& each = *peers_.at(id);
                             if (each.host != nullptr) each.host->on_room();
                           }});
  if (!peer->stream->open()) return;
  peer->timeout = loop.call_after(kGreetingTimeout, [this, id] { drop(id); });
  peers_[id] = std::move(peer);
  const std::lock_guard lock(mutex_);
  ++connected_;
}

// A machine that was let in and has no command says nothing that matters: it is what is left of
// one.
void DialServer::on_frame(PeerId id, const DialFrame& frame) {
  Peer& peer = *peers_.at(id);
  if (peer.name.empty()) {
    if (frame.type != DialFrameType::kJoin) return drop(id);
    return on_join(id, peer, frame.payload);
  }
  if (peer.host != nullptr) peer.host->on_frame(frame);
}

// Version, token, name, in this order: what an unauthenticated client learns does not depend on any
// secret, and only a client with the token learns about the job.
void DialServer::on_join(PeerId id, Peer& peer, std::string_view payload) {
  auto request = decode_join_request(payload);
  if (!request) return refuse(id, request.error().message);
  if (!equals_in_constant_time(request->token, url_.token)) {
    return refuse(id, "the token is not this job's");
  }
  // From here on it is one of the user's machines.
  if (!is_machine_name(request->name)) {
    return refuse(id, quote(request->name, 64) + " cannot be the name of a host");
  }
  const int slots = static_cast<int>(
      std::clamp<std::uint32_t>(request->slots, 1, static_cast<std::uint32_t>(kMaxSlotsPerHost)));
  const DialRoster::Verdict verdict = roster_.join(request->name, peer.address, slots);
  if (!verdict.refusal.empty()) return refuse(id, verdict.refusal);
  threads_->loop(0).cancel(peer.timeout);
  peer.timeout = 0;
  peer.name = verdict.name;
  peer.stream->allow(kLargestDialFrame);
  peer.stream->send(DialFrameType::kAccepted, peer.name);
  const bool complete = roster_.complete();
  if (complete && !stays_open_) close_door();
  observer_({peer.name + (peer.name == peer.address ? "" : " (" + peer.address + ")") +
                 " has joined with " + counted(slots, "slot") + ": " + roster_.standing(),
             peer.name, complete});
}

// All that the machine has sent was read, so closing does not reset the connection, and the text
// arrives.
void DialServer::refuse(PeerId id, const std::string& why) {
  peers_.at(id)->stream->send(DialFrameType::kRefused, why);
  drop(id);
}

void DialServer::on_end(PeerId id, const std::string& why) {
  Peer& peer = *peers_.at(id);
  if (peer.host != nullptr) std::exchange(peer.host, nullptr)->on_lost(why);
  const std::string name = peer.name;
  drop(id);
  // Once the job has all of its hosts, the job reports what happens to them.
  if (name.empty() || roster_.complete()) return;
  roster_.leave(name);
  observer_({name + " has left (" + why + "): " + roster_.standing(), "", false});
}

// May be called from inside a handler of the stream that it destroys; that one allows it.
void DialServer::drop(PeerId id, const std::string& why) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = *found->second;
  threads_->loop(0).cancel(peer.timeout);
  if (peer.host != nullptr) std::exchange(peer.host, nullptr)->on_lost(why);
  peers_.erase(found);
  const std::lock_guard lock(mutex_);
  if (--connected_ == 0) all_gone_.notify_all();
}

// Unauthenticated connections are left alone: they may be machines whose first frame is on its way.
void DialServer::drop_all(const std::string& why) {
  std::vector<PeerId> members;
  for (const auto& [id, peer] : peers_) {
    if (!peer->name.empty()) members.push_back(id);
  }
  for (const PeerId id : members) drop(id, why);
}

namespace {

Endpoint door(const ListenSpec& listen) {
  if (const auto address = parse_ip_address(listen.address)) return {*address, listen.port};
  Endpoint any;
  any.address.v6 = true;  // "::" takes IPv4 as well
  any.port = listen.port;
  return any;
}

// Node 0 of a platform takes part, and needs no connection to itself.
class OwnAndJoined : public Transport {
 public:
  OwnAndJoined(std::string own, std::unique_ptr<Transport> local, std::unique_ptr<Transport> joined)
      : own_(std::move(own)), local_(std::move(local)), joined_(std::move(joined)) {}

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override {
    Transport& way = host.name == own_ ? *local_ : *joined_;
    return way.start(host, host_index, image, deadline);
  }

 private:
  const std::string own_;
  const std::unique_ptr<Transport> local_, joined_;
};

// In the same words as an engine's allocation, which it replaces.
std::string summary(const std::vector<Host>& hosts, const std::string& platform) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots.value_or(0);
  return (platform.empty() ? "" : platform + ": ") + counted(slots, "slot") + " on " +
         counted(hosts.size(), "host") + " (" + format_host_list(hosts) + "), joined by " +
         (platform.empty() ? "--join" : "the same command there");
}

}  // namespace

void JoinWait::say(const std::string& text) const {
  if (!spec_.json) std::fprintf(stderr, "horarun: %s\n", text.c_str());
}

// The server's thread never touches this object: what it sees comes as a task of the loop.
Result<std::unique_ptr<JoinWait>> JoinWait::open(const JobSpec& spec,
                                                 const std::optional<PlatformNode>& node) {
  std::unique_ptr<JoinWait> join_wait(new JoinWait(spec, node));
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  join_wait->loop_ = std::move(*loop);
  const auto observer = [raw = join_wait.get()](DialServer::Event event) {
    raw->loop_->post([raw, event = std::move(event)] {
      raw->say(event.text);
      if (!event.complete) return;
      raw->complete_ = true;
      raw->loop_->stop();
    });
  };
  DialRoster roster(spec.hosts, spec.num_proc);
  if (node) roster.join(node->name, "", spec.hosts.front().slots.value_or(1));
  const std::string key = node ? node->key : std::string();
  auto server = DialServer::open(door(*spec.listen), roster, observer, key);
  // A machine without IPv6 has no "::".
  if (!server && spec.listen->address.empty()) {
    server = DialServer::open({IpAddress{}, spec.listen->port}, roster, observer, key);
  }
  if (!server) return std::move(server).error().with_context("--listen");
  join_wait->server_ = std::move(*server);
  HORA_TRY(join_wait->announce());
  return join_wait;
}

std::unique_ptr<Transport> JoinWait::transport(StageObserver observer) {
  if (!node_) return server_->transport(std::move(observer));
  return std::make_unique<OwnAndJoined>(node_->name, local_transport().create(spec_, observer),
                                        server_->transport(observer));
}

// After an error, too, no secret remains.
JoinWait::~JoinWait() {
  if (!file_.empty()) ::unlink(file_.c_str());
}

// The line that is safe to type: the secret is in the memory of a shell and of horarun, and in no
// list of processes.
Status JoinWait::announce() {
  const std::string url = format_join_url(server_->url());
  const std::string waits_for = server_->standing();
  if (node_) {
    say(node_->platform + " runs this command on " + counted(spec_.hosts.size(), "node") +
        "; waiting at port " + std::to_string(server_->url().addresses.front().port) +
        " for those that join: " + waits_for);
    return Ok{};
  }
  if (spec_.listen->file.empty()) {
    say("waiting for machines, " + waits_for +
        ". Type on each of them (the line is a secret):\n\n" + "    echo '" + url +
        "' | horarun --join -\n");
    return Ok{};
  }
  auto file = os::AtomicFile::make(spec_.listen->file, 0600);
  if (!file) return std::move(file).error().with_context("--listen-file");
  HORA_TRY(file->write(url + "\n"));
  HORA_TRY(file->finish());
  file_ = file->path();
  say("waiting for machines, " + waits_for + ". Run on each of them: horarun --join FILE, with " +
      spec_.listen->file + " or a copy that only you can read");
  return Ok{};
}

// This loop sees signals and the server's events, nothing else: the connections live on the
// server's thread, which goes on while the job runs on a loop of its own.
Result<std::optional<int>> JoinWait::wait(JobSpec& spec) {
  int signal = 0;
  bool late = false;
  {
    auto signals = Signals::watch(*loop_, [&](int received) {
      if (!ends_job(received)) return;
      signal = received;
      loop_->stop();
    });
    if (!signals) return std::move(signals).error();
    loop_->call_after(spec.listen->timeout, [&] {
      late = true;
      loop_->stop();
    });
    HORA_TRY(loop_->run());
  }
  if (!file_.empty()) ::unlink(file_.c_str());
  file_.clear();
  if (!complete_) {
    const int code = late ? kExitTimeout : exit_code_of_signal(signal);
    const std::string why = late ? "waited " + std::to_string(spec.listen->timeout.count() / 1000) +
                                       " s for machines to join: " + server_->standing() + " [" +
                                       std::string(failure::kStartTimeout) + "]"
                                 : "ended by signal " + std::to_string(signal) +
                                       " while it waited for machines: " + server_->standing();
    std::fprintf(stderr, "horarun: %s\n", why.c_str());
    return std::optional(code);
  }
  spec.hosts = server_->hosts();
  spec.engine =
      JobEngine{"join", "", summary(spec.hosts, node_ ? node_->platform : std::string()), {}};
  return std::optional<int>();
}

}  // namespace hora::launcher
