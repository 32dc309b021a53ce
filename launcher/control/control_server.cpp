// SPDX-License-Identifier: Apache-2.0
// The loop also has the job's hosts and output: nothing here waits. What a client does not read
// stays in its buffer, and it gets no more figures until it has read them, so the buffer holds one
// answer at most.
#include "launcher/control/control_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/control/control_folder.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/local_socket.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostClients = 32;
constexpr int kBacklog = 16;
constexpr Milliseconds kAcceptAgain{1'000};
constexpr Milliseconds kRequestTimeout{2'000};  // for the line, and for its answer to be read

// The folder keeps others out; this also holds where its rights were changed later. Root may do to
// the launcher what it likes anyway.
bool is_peer_allowed(int fd) {
  const auto who = os::peer_of(fd);
  return who && (who->uid == ::geteuid() || who->uid == 0);
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::open(os::EventLoop& loop,
                                                           const std::vector<std::string>& folders,
                                                           Handlers handlers) {
  std::unique_ptr<ControlServer> server(new ControlServer(loop, std::move(handlers)));
  Status listens = make_error(ErrorCode::kFailed, "there is no folder for the socket");
  for (const std::string& folder : folders) {
    listens = server->listen_in(folder);
    if (listens) break;
  }
  if (!listens) return std::move(listens).error();
  HORA_TRY(server->watch_listener());
  return server;
}

Status ControlServer::listen_in(const std::string& folder) {
  const std::string name = std::to_string(::getpid());
  os::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_error(errno, "the socket for horarun jobs");
  constexpr int kTries = 3;  // another launcher may remove the empty folder meanwhile
  for (int i = 0;; ++i) {
    os::Fd directory = os::open_own_folder(folder, /*make=*/true);
    if (!directory.valid()) {
      return make_error(ErrorCode::kFailed, folder + " is not a folder of this user alone");
    }
    // A killed launcher that had our number has left it.
    (void)::unlinkat(directory.get(), name.c_str(), 0);
    const sockaddr_un address = control_address(directory, name);
    const bool bound =
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    if (!bound && errno == ENOENT && i < kTries) continue;
    if (!bound || ::listen(socket.get(), kBacklog) != 0) {
      return errno_error(errno, "the socket for horarun jobs in " + folder);
    }
    folder_ = folder;
    name_ = name;
    directory_ = std::move(directory);
    listener_ = std::move(socket);
    return Ok{};
  }
}

ControlServer::~ControlServer() {
  while (!clients_.empty()) drop(clients_.begin()->first);
  if (!listener_.valid()) return;
  loop_.cancel(retry_);
  loop_.unwatch(listener_.get());
  (void)::unlinkat(directory_.get(), name_.c_str(), 0);
  (void)::rmdir(folder_.c_str());
}

Status ControlServer::watch_listener() {
  return loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); });
}

// Without a free descriptor the connection stays in the queue, and would wake the loop at once: it
// has to wait until there may be one.
void ControlServer::on_connection() {
  os::Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid() && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    loop_.unwatch(listener_.get());
    retry_ = loop_.call_after(kAcceptAgain, [this] { (void)watch_listener(); });
    return;
  }
  if (!fd.valid() || clients_.size() >= kMostClients || !is_peer_allowed(fd.get())) return;
  const int number = fd.get();
  if (!loop_.watch(number, EPOLLIN,
                   [this, number](std::uint32_t events) { on_client(number, events); })) {
    return;
  }
  Client& client = clients_[number];
  client.fd = std::move(fd);
  client.deadline = loop_.call_after(kRequestTimeout, [this, number] { drop(number); });
}

void ControlServer::on_client(int fd, std::uint32_t events) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !read_request(client)) return drop(fd);
  if (!write_out(client)) return drop(fd);
  if (client.asked && client.out.empty() && !client.stays) drop(fd);
}

// False: the connection is of no more use.
bool ControlServer::read_request(Client& client) {
  char buffer[kLongestControlRequest];
  const ssize_t got = ::read(client.fd.get(), buffer, sizeof buffer);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  // What follows the request has no meaning.
  if (client.asked) return true;
  client.in.append(buffer, static_cast<std::size_t>(got));
  const std::size_t end = client.in.find('\n');
  if (end == std::string::npos) return client.in.size() < kLongestControlRequest;
  const auto request = parse_control_request(std::string_view(client.in).substr(0, end));
  if (!request) return false;
  client.asked = true;
  answer(client, *request);
  return true;
}

void ControlServer::answer(Client& client, const ControlRequest& request) {
  const JobSummary summary = handlers_.summary();
  client.out += job_summary_json(summary);
  if (request.kind == ControlRequest::Kind::kJob) return;
  client.stays = true;
  loop_.cancel(client.deadline);
  if (request.kind == ControlRequest::Kind::kTop) {
    client.watches = true;
    return settle_watch();
  }
  if (request.kind == ControlRequest::Kind::kAttach) {
    client.attached = true;
    if (summary.state == "running") client.out += std::string(kRunningLine) + "\n";
    return;
  }
  // Not here: the end of the job may end this object.
  loop_.post([cancel = handlers_.cancel] { cancel(); });
}

void ControlServer::settle_watch() {
  handlers_.watch(std::any_of(clients_.begin(), clients_.end(),
                              [](const auto& client) { return client.second.watches; }));
}

void ControlServer::announce(const std::string& line) {
  std::vector<int> broken;
  for (auto& [fd, client] : clients_) {
    if (!client.attached) continue;
    client.out += line + "\n";
    if (!write_out(client)) broken.push_back(fd);
  }
  for (const int fd : broken) drop(fd);
}

void ControlServer::publish(const JobFigures& figures) {
  std::string line;  // of thousands of ranks: only for a client that reads it
  std::vector<int> broken;
  for (auto& [fd, client] : clients_) {
    if (!client.watches || !client.out.empty()) continue;
    if (line.empty()) line = figures_json(::getpid(), figures);
    client.out = line;
    if (!write_out(client)) broken.push_back(fd);
  }
  for (const int fd : broken) drop(fd);
}

bool ControlServer::write_out(Client& client) {
  while (!client.out.empty()) {
    const ssize_t wrote =
        ::send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno != EAGAIN) return false;
    if (wrote < 0) break;
    client.out.erase(0, static_cast<std::size_t>(wrote));
  }
  const std::uint32_t events = client.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  return static_cast<bool>(loop_.change(client.fd.get(), events));
}

void ControlServer::drop(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  loop_.cancel(found->second.deadline);
  loop_.unwatch(fd);
  const bool watched = found->second.watches;
  clients_.erase(found);
  if (watched) settle_watch();
}

}  // namespace hora::launcher
