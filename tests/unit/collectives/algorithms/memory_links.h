// SPDX-License-Identifier: Apache-2.0
// PeerLinks between threads, which keep time: a message takes one from rank to rank, and so does
// the notice that its receive was posted, without which it does not leave. So a test can see how
// often an operation waits for the link, whatever the machine does meanwhile.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/backend.h"

namespace hora::collectives::test {

class MemoryNet {
 public:
  struct Message {
    const void* sent = nullptr;
    void* received = nullptr;
    std::size_t bytes_sent = 0;
    std::size_t bytes_received = 0;
    int posted_at = 0;    // of the receive
    int sent_at = 0;      // when it was posted, and then when it left
    bool passed = false;  // its bytes are there
  };
  using Key = std::tuple<int, int, std::uint64_t>;  // from, to, tag

  // Both sides have posted: the bytes are there at once, even if no thread waits for them yet.
  void match(Message& message) {
    if (message.sent == nullptr || message.received == nullptr) return;
    message.sent_at = std::max(message.sent_at, message.posted_at + 1);
    fits = fits && message.bytes_sent == message.bytes_received;
    std::memcpy(message.received, message.sent,
                std::min(message.bytes_sent, message.bytes_received));
    message.passed = true;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, Message> messages;
  bool fits = true;  // both sides agreed on every size
};

class MemoryLinks final : public PeerLinks {
 public:
  MemoryLinks(MemoryNet& net, int rank) : net_(net), rank_(rank) {}

  int time() const { return time_; }
  std::size_t most_posted() const { return most_posted_; }
  // The post after that many more is refused.
  void refuse_after(int posts) { posts_left_ = posts; }

  Ticket post_send(int rank, std::uint64_t tag, const void* data,
                   std::size_t bytes) noexcept override {
    if (refuses()) return 0;
    const std::lock_guard<std::mutex> lock(net_.mutex);
    const MemoryNet::Key key{rank_, rank, tag};
    MemoryNet::Message& message = net_.messages[key];
    message.sent = data;
    message.bytes_sent = bytes;
    message.sent_at = time_;
    net_.match(message);
    transfers_.push_back({key, true});
    return transfers_.size();
  }

  Ticket post_receive(int rank, std::uint64_t tag, void* data,
                      std::size_t bytes) noexcept override {
    if (refuses()) return 0;
    const std::lock_guard<std::mutex> lock(net_.mutex);
    const MemoryNet::Key key{rank, rank_, tag};
    MemoryNet::Message& message = net_.messages[key];
    message.received = data;
    message.bytes_received = bytes;
    message.posted_at = time_;
    net_.match(message);
    posted_ += bytes;
    most_posted_ = std::max(most_posted_, posted_);
    transfers_.push_back({key, false});
    return transfers_.size();
  }

  bool wait(Ticket ticket, ErrorText& error) noexcept override {
    if (failed_ || ticket == 0) {
      failed_ = true;
      return error.set("no more messages");
    }
    const auto& [key, is_send] = transfers_[ticket - 1];
    std::unique_lock<std::mutex> lock(net_.mutex);
    const MemoryNet::Message& message = net_.messages[key];
    if (!net_.changed.wait_for(lock, std::chrono::seconds(60), [&] { return message.passed; })) {
      failed_ = true;
      return error.set("the message did not arrive");
    }
    if (!is_send) posted_ -= message.bytes_received;
    time_ = std::max(time_, message.sent_at + (is_send ? 0 : 1));
    return true;
  }

  void abort() noexcept override {}
  void destroy() noexcept override {}

 private:
  bool refuses() { return posts_left_ >= 0 && posts_left_-- == 0; }

  MemoryNet& net_;
  int rank_;
  int time_ = 0;
  std::vector<std::pair<MemoryNet::Key, bool>> transfers_;
  std::size_t posted_ = 0;  // bytes of receives that are not awaited yet
  std::size_t most_posted_ = 0;
  int posts_left_ = -1;
  bool failed_ = false;
};

}  // namespace hora::collectives::test
