// SPDX-License-Identifier: Apache-2.0
// What a thread has posted to the loop may run when the packer is gone, so threads and posts share
// what they need with it and hold it themselves. The parts belong to the job's files, which outlive
// the fleet.
#include "launcher/fleet/part_packer.h"

#include <algorithm>
#include <utility>

namespace hora::launcher {

namespace {

constexpr unsigned kMostThreads = 4;

}  // namespace

PartPacker::PartPacker(os::EventLoop& loop, Handler on_packed) : loop_(loop) {
  shared_->on_packed = std::move(on_packed);
}

PartPacker::~PartPacker() {
  {
    // A thread that has just looked at it, and is about to wait, would wait for ever.
    const std::lock_guard lock(shared_->mutex);
    shared_->state.over = true;
  }
  shared_->more.notify_all();
  for (std::thread& each : threads_) each.join();
}

void PartPacker::pack(const TreePart& part) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->waiting.push_back(&part);
  }
  shared_->more.notify_one();
  // None before it is needed: most jobs ship nothing, or nothing new.
  const unsigned most = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  if (threads_.size() < most) {
    threads_.emplace_back([&loop = loop_, shared = shared_] { work(loop, shared); });
  }
}

void PartPacker::work(os::EventLoop& loop, const std::shared_ptr<Shared>& shared) {
  while (true) {
    std::unique_lock lock(shared->mutex);
    shared->more.wait(lock, [&shared] { return shared->state.over || !shared->waiting.empty(); });
    if (shared->state.over) return;
    const TreePart& part = *shared->waiting.front();
    shared->waiting.pop_front();
    lock.unlock();
    auto frames = tree_part_frames(part, shared->state);
    // The loop may run this when the packer is gone.
    loop.post([shared, &part, frames = std::make_shared<Result<Frames>>(std::move(frames))] {
      if (!shared->state.over) shared->on_packed(part, std::move(*frames));
    });
  }
}

}  // namespace hora::launcher
