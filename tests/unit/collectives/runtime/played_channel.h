// SPDX-License-Identifier: Apache-2.0
// A control channel whose other ends are played by the test, and the world around it.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/messages.h"
#include "collectives/runtime/world.h"

namespace hora::test {

using collectives::ControlChannel;
using collectives::ControlMessage;
using collectives::FastPath;
using collectives::Incoming;
using collectives::RankInfo;
using collectives::World;
using Batch = std::vector<Incoming>;

// Every rank on a host of its own: host0, host1, ...
inline World world_of(int rank, int size) {
  World world;
  world.settings.rank = rank;
  world.settings.size = size;
  for (int i = 0; i < size; ++i) {
    RankInfo rank_info;
    rank_info.hostname = "host" + std::to_string(i);
    world.rank_infos.push_back(rank_info);
    world.hosts.push_back(i);
  }
  return world;
}

// Each poll() answers one batch; when there are no more, it waits.
class PlayedChannel final : public ControlChannel {
 public:
  void play(Batch batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    batches_.push_back(std::move(batch));
    changed_.notify_all();
  }
  std::vector<std::string> sent_to(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sent_[rank];
  }
  // Until this side has sent something of that kind to any other.
  bool wait_for(ControlMessage kind) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      for (const auto& [rank, messages] : sent_) {
        for (const std::string& each : messages) {
          if (collectives::kind_of(each) == kind) return true;
        }
      }
      return false;
    });
  }

  void send(int rank, std::string_view bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    sent_[rank].emplace_back(bytes);
    changed_.notify_all();
  }
  Status flush(int, Deadline) override {
    if (reads_) return Ok{};
    return make_error(ErrorCode::kTimedOut, "the peer does not read");
  }
  std::vector<Incoming> poll(Deadline deadline) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ready = [&] { return !batches_.empty() || std::exchange(woken_, false); };
    if (deadline == Deadline::max()) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_until(lock, deadline, ready);
    }
    if (batches_.empty()) return {};
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    return batch;
  }
  void wake() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  void hang_up() override { hung_up_ = true; }
  std::vector<int> liveness_fds() const override { return {}; }
  FastPath* fast_path() override { return fast_path_; }

  // The messages of this side are not read.
  void stop_reading() { reads_ = false; }
  bool hung_up() const { return hung_up_; }
  void put(FastPath& fast_path) { fast_path_ = &fast_path; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> batches_;
  std::map<int, std::vector<std::string>> sent_;
  bool woken_ = false;
  bool reads_ = true;
  bool hung_up_ = false;
  FastPath* fast_path_ = nullptr;
};

inline Incoming complaint(int rank, const std::string& text) {
  return {rank, false, collectives::control_message(ControlMessage::kBroken, text)};
}
inline Incoming end_of(int rank) { return {rank, true, "the connection was closed"}; }

}  // namespace hora::test
