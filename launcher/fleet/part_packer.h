// SPDX-License-Identifier: Apache-2.0
// Packs parts of the user's folders by a few threads, since a part may have gigabytes, and the loop
// has hosts to serve meanwhile. What is packed is bounded: one part for each thread, until the
// loop has taken it. On the loop's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launcher/build/user_tree.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class PartPacker {
 public:
  using Frames = std::shared_ptr<const std::string>;
  // Called on the loop's thread, once for each part.
  using Handler = std::function<void(const TreePart& part, Result<Frames> frames)>;

  PartPacker(os::EventLoop& loop, Handler on_packed);
  // Ends within the time that a piece of a file takes.
  ~PartPacker();
  PartPacker(const PartPacker&) = delete;
  PartPacker& operator=(const PartPacker&) = delete;

  // `part` must outlive this object.
  void pack(const TreePart& part);
  std::uint64_t read_bytes() const { return shared_->state.read_bytes; }  // so far

 private:
  // What the threads and the loop share; a task of the loop may outlive this object.
  struct Shared {
    std::mutex mutex;
    std::condition_variable more;
    std::deque<const TreePart*> waiting;
    PackingState state;
    Handler on_packed;
  };
  static void work(os::EventLoop& loop, const std::shared_ptr<Shared>& shared);

  os::EventLoop& loop_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<std::thread> threads_;
};

}  // namespace hora::launcher
