// SPDX-License-Identifier: Apache-2.0
// hora-pmi1 serves PMI-1 to the ranks of one host. The agent starts it, sends the job on standard
// input, and connects to it once for each rank, which inherits that connection. It ends when
// standard input ends.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>

#include "apps/pmi/job_exchange.h"
#include "apps/pmi/pmi1_protocol.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/local_socket.h"

namespace hora::pmi {

namespace {

constexpr std::size_t kLongestLine = 64 * 1024;

struct Client {
  os::Fd fd;
  // Unknown until the first line, which the agent has written.
  int rank = -1;
  std::string unread;
};

class Server {
 public:
  Server(const launcher::PmiJob& job, std::optional<Exchange> exchange)
      : job_(job), exchange_(std::move(exchange)), protocol_(job) {}

  launcher::PmiReply open();
  void run();

 private:
  void take_client();
  bool read_client(Client& client);
  bool handle_line(Client& client, const std::string& line);
  void begin_exchange();
  void end_exchange();
  void end_barrier(std::string_view updates);
  static void send_line(Client& client, const std::string& line);

  const launcher::PmiJob& job_;
  std::optional<Exchange> exchange_;
  Pmi1Protocol protocol_;
  os::Fd listener_;
  // Read end: one byte for each exchange that has ended.
  os::Fd exchanged_;
  os::Fd report_exchanged_;
  std::list<Client> clients_;
  int barriers_ = 0;
  // Guards what follows.
  std::mutex mutex_;
  Result<std::string> updates_ = std::string();
};

launcher::PmiReply Server::open() {
  launcher::PmiReply reply;
  const launcher::PmiHost& here = job_.hosts[static_cast<std::size_t>(job_.own_host)];
  // An abstract name instead of a file; take_client() checks that the peer is of this account.
  reply.socket = "hora-pmi1-" + job_.job_id + "-" + std::to_string(job_.own_host);
  const os::AbstractAddress address(reply.socket);
  listener_ = os::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int ends[2];
  if (!listener_.valid() || ::bind(listener_.get(), address.get(), address.size()) != 0 ||
      ::listen(listener_.get(), 1024) != 0 || ::pipe2(ends, O_CLOEXEC) != 0) {
    reply.error = std::string("a socket: ") + std::strerror(errno);
    return reply;
  }
  exchanged_ = os::Fd(ends[0]);
  report_exchanged_ = os::Fd(ends[1]);
  std::size_t size = 0;
  for (const launcher::PmiHost& host : job_.hosts) size += host.ranks.size();
  for (const int rank : here.ranks) {
    reply.environment.push_back(
        {rank, {{"PMI_RANK", std::to_string(rank)}, {"PMI_SIZE", std::to_string(size)}}});
  }
  return reply;
}

// One thread serves all ranks; an exchange with other hosts runs on a thread of its own.
void Server::run() {
  while (true) {
    std::vector<pollfd> items{
        {STDIN_FILENO, POLLIN, 0}, {listener_.get(), POLLIN, 0}, {exchanged_.get(), POLLIN, 0}};
    for (const Client& client : clients_) items.push_back({client.fd.get(), POLLIN, 0});
    if (::poll(items.data(), items.size(), -1) < 0 && errno != EINTR) return;
    // The agent does not need us any more.
    if (items[0].revents != 0) return;
    auto item = items.begin() + 3;
    // New clients come after the loop, because they have no poll item yet.
    for (auto client = clients_.begin(); client != clients_.end(); ++item) {
      const bool stays = item->revents == 0 || read_client(*client);
      client = stays ? std::next(client) : clients_.erase(client);
    }
    if (items[1].revents != 0) take_client();
    if (items[2].revents != 0) end_exchange();
  }
}

void Server::take_client() {
  Client client;
  client.fd = os::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const auto peer = os::peer_of(client.fd.get());
  if (peer && peer->uid == ::geteuid()) clients_.push_back(std::move(client));
}

// Returns false when the rank has gone or speaks another protocol.
bool Server::read_client(Client& client) {
  char bytes[4096];
  const ssize_t count = ::read(client.fd.get(), bytes, sizeof bytes);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  client.unread.append(bytes, static_cast<std::size_t>(count));
  for (std::size_t end; (end = client.unread.find('\n')) != std::string::npos;) {
    const std::string line = client.unread.substr(0, end);
    client.unread.erase(0, end + 1);
    if (!handle_line(client, line)) return false;
  }
  // A line without an end must not fill the memory.
  return client.unread.size() < kLongestLine;
}

bool Server::handle_line(Client& client, const std::string& line) {
  if (client.rank < 0) return std::sscanf(line.c_str(), "rank=%d", &client.rank) == 1;
  report_used();
  // The rank waits until the job ends it.
  if (const auto code = abort_code(line)) return report_abort(client.rank, *code);
  send_line(client, protocol_.handle(client.rank, line));
  if (protocol_.all_here()) begin_exchange();
  return true;
}

// A rank that does not read its answer is not waited for.
void Server::send_line(Client& client, const std::string& line) {
  if (line.empty()) return;
  static_cast<void>(::send(client.fd.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

// All ranks of this host are at the barrier: exchange their keys with the other hosts.
void Server::begin_exchange() {
  if (!exchange_) return end_barrier({});
  std::vector<int> hosts;
  for (std::size_t i = 0; i < job_.hosts.size(); ++i) hosts.push_back(static_cast<int>(i));
  const std::string place = "hora_pmi1_barrier_" + std::to_string(barriers_++);
  std::thread([this, place, hosts, mine = protocol_.take_updates()] {
    auto all = exchange_->gather(place, job_.own_host, hosts, mine);
    const std::lock_guard<std::mutex> lock(mutex_);
    updates_ = std::move(all);
    static_cast<void>(!::write(report_exchanged_.get(), "", 1));
  }).detach();
}

void Server::end_exchange() {
  char byte;
  static_cast<void>(!::read(exchanged_.get(), &byte, 1));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!updates_) {
    // A barrier that fails leaves all ranks waiting, so end; the agent reports the last words.
    std::fprintf(stderr, "a barrier of the ranks: %s\n", updates_.error().message.c_str());
    _exit(launcher::kExitFailed);
  }
  end_barrier(*updates_);
}

void Server::end_barrier(std::string_view updates) {
  if (!protocol_.add_updates(updates)) {
    std::fprintf(stderr, "another host's hora-pmi1 sent something else than keys\n");
    _exit(launcher::kExitFailed);
  }
  const std::string line = protocol_.end_barrier();
  for (Client& client : clients_) send_line(client, line);
}

}  // namespace

}  // namespace hora::pmi

int main() {
  const auto job = hora::pmi::read_job("hora-pmi1");
  if (!job) return hora::launcher::kExitUsage;
  hora::launcher::PmiReply reply;
  auto exchange = hora::pmi::exchange_of(*job, reply);
  hora::pmi::Server server(*job, std::move(exchange));
  if (reply.error.empty()) reply = server.open();
  if (!hora::pmi::write_reply(reply) || !reply.error.empty()) _exit(hora::launcher::kExitFailed);
  server.run();
  // A thread may wait for an answer that never comes.
  _exit(hora::launcher::kExitOk);
}
