// SPDX-License-Identifier: Apache-2.0
// A real rendezvous server on a loop and thread of its own, and raw connections to it.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/kv_server.h"
#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

namespace hora::rendezvous::testing {

inline Deadline soon() { return Clock::now() + std::chrono::seconds(20); }

inline AccessPolicy loopback_only() {
  return {.token = {}, .allow = {*parse_cidr("127.0.0.0/8"), *parse_cidr("::1")}};
}

class RunningServer {
 public:
  explicit RunningServer(KvServerOptions options = {}, AccessPolicy access = loopback_only(),
                         const KvLimits& limits = {})
      : service_(std::move(access), limits) {
    auto loop = os::EventLoop::create();
    REQUIRE(loop);
    loop_ = std::move(*loop);
    if (options.addresses.empty()) {
      options.addresses.push_back({*parse_ip_address("127.0.0.1"), 0});
    }
    auto server = KvServer::start(*loop_, service_, std::move(options));
    if (!server) FAIL(server.error().message);
    server_ = std::move(*server);
    addresses_ = server_->addresses();
    thread_ = std::thread([this] { (void)loop_->run(); });
  }
  ~RunningServer() {
    loop_->post([this] {
      server_.reset();
      loop_->stop();
    });
    thread_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  const Endpoint& where() const { return addresses_.front(); }
  const std::vector<Endpoint>& addresses() const { return addresses_; }

  os::EventLoop& loop() { return *loop_; }

  // Runs `task` with the service on the loop's thread, and waits for it.
  template <typename Task>
  void with_service(Task task) {
    std::thread::id ran;
    std::mutex mutex;
    std::condition_variable done;
    loop_->post([&] {
      task(service_);
      server_->deliver();
      std::lock_guard lock(mutex);
      ran = std::this_thread::get_id();
      done.notify_one();
    });
    std::unique_lock lock(mutex);
    const bool came = done.wait_until(lock, soon(), [&] { return ran != std::thread::id(); });
    lock.unlock();
    REQUIRE(came);
  }

  // Looks at the service until `condition` holds.
  template <typename Condition>
  void await(Condition condition, std::string_view what) {
    const Deadline deadline = soon();
    for (bool holds = false; !holds;) {
      with_service([&](KvService& service) { holds = condition(service); });
      if (holds) return;
      if (Clock::now() >= deadline) FAIL("timed out waiting for " << what);
      std::this_thread::yield();
    }
  }

 private:
  KvService service_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<KvServer> server_;
  std::vector<Endpoint> addresses_;
  std::thread thread_;
};

// A TCP connection that sends exactly the given bytes.
class RawClient {
 public:
  explicit RawClient(const Endpoint& where) {
    auto fd = net::connect_tcp(where, soon());
    if (!fd) FAIL(fd.error().message);
    fd_ = std::move(*fd);
  }

  void send(std::string_view bytes) {
    const Status status = net::send_all(fd_.get(), bytes, soon());
    if (!status) FAIL(status.error().message);
  }
  // Sends what the peer takes; a refusal to take more is not a failure.
  void try_send(std::string_view bytes) { (void)net::send_all(fd_.get(), bytes, soon()); }

  // Exactly `count` bytes, or fewer if the stream ends.
  std::string read(std::size_t count) {
    while (buffer_.size() < count && read_more()) continue;
    return take(std::min(count, buffer_.size()));
  }
  // Up to and with `end`.
  std::string read_until(std::string_view end) {
    for (;;) {
      const auto at = buffer_.find(end);
      if (at != std::string::npos) return take(at + end.size());
      if (!read_more()) return take(buffer_.size());
    }
  }
  std::string read_all() {
    while (read_more()) continue;
    return take(buffer_.size());
  }
  // A reply whose head says how long its body is: status, and the body.
  std::pair<int, std::string> read_reply() {
    const std::string head = read_until("\r\n\r\n");
    last_head = head;
    INFO(head);
    REQUIRE(head.substr(0, 9) == "HTTP/1.1 ");
    const auto field = head.find("Content-Length: ");
    REQUIRE(field != std::string::npos);
    return {std::stoi(head.substr(9, 3)), read(std::stoul(head.substr(field + 16)))};
  }
  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

  std::string last_head;

 private:
  bool read_more() {
    std::array<char, 64 * 1024> chunk;
    auto got = net::receive_some(fd_.get(), chunk.data(), chunk.size(), soon());
    if (!got) FAIL(got.error().message);  // a reset is a failure too
    buffer_.append(chunk.data(), *got);
    return *got > 0;
  }
  std::string take(std::size_t count) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }

  os::Fd fd_;
  std::string buffer_;
};

}  // namespace hora::rendezvous::testing
