// SPDX-License-Identifier: Apache-2.0
// A server that knows Horovod's protocol and nothing else, for the client's fallback: HTTP/1.0, one
// request per connection, paths taken as they are, no waiting. Keys are as the client sent them.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

namespace hora::rendezvous::testing {

class PlainServer {
 public:
  PlainServer() {
    auto fd = net::listen_tcp({*parse_ip_address("127.0.0.1"), 0});
    REQUIRE(fd);
    listener_ = std::move(*fd);
    where_ = *net::local_endpoint(listener_.get());
    thread_ = std::thread([this] { serve(); });
  }
  ~PlainServer() {
    over_ = true;
    // Wakes it up.
    (void)net::connect_tcp(where_, Clock::now() + std::chrono::seconds(5));
    thread_.join();
  }
  const Endpoint& where() const { return where_; }
  int requests() const { return requests_; }

 private:
  void serve() {
    while (!over_) {
      const Deadline deadline = Clock::now() + std::chrono::seconds(20);
      if (!net::wait_readable(listener_.get(), deadline, "a connection")) return;
      auto accepted = net::accept_tcp(listener_.get());
      if (accepted && *accepted) answer((*accepted)->fd.get(), deadline);
    }
  }

  void answer(int fd, Deadline deadline) {
    std::string in;
    std::array<char, 65536> chunk;
    std::size_t wanted = std::string::npos;
    std::size_t head = 0;
    while (in.size() < wanted) {
      auto got = net::receive_some(fd, chunk.data(), chunk.size(), deadline);
      if (!got || *got == 0) return;
      in.append(chunk.data(), *got);
      if (wanted != std::string::npos) continue;
      head = in.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const auto at = in.find("Content-Length: ");
      wanted = head + 4 + (at < head ? std::stoul(in.substr(at + 16, 20)) : 0);
    }
    ++requests_;
    const std::string method = in.substr(0, in.find(' '));
    const auto path_at = method.size() + 1;
    const std::string path = in.substr(path_at, in.find(' ', path_at) - path_at);
    int status = 200;
    std::string body;
    if (std::count(path.begin(), path.end(), '/') < 2) {
      status = 400;
    } else if (method == "PUT") {
      values_[path] = in.substr(head + 4);
    } else if (method == "DELETE") {
      values_.erase(path);
    } else if (const auto found = values_.find(path); found != values_.end()) {
      body = found->second;
    } else {
      status = 404;
    }
    (void)net::send_all(fd,
                        "HTTP/1.0 " + std::to_string(status) +
                            " X\r\nServer: BaseHTTP/0.6 Python/3.11\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body,
                        deadline);
  }

  os::Fd listener_;
  Endpoint where_;
  std::atomic<bool> over_ = false;
  std::atomic<int> requests_ = 0;
  std::map<std::string, std::string> values_;
  std::thread thread_;
};

}  // namespace hora::rendezvous::testing
