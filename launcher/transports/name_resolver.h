// SPDX-License-Identifier: Apache-2.0
// Host names to addresses without blocking the loop that asks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The system's resolver blocks, for tens of seconds when a name server is silent, and cannot be
// interrupted. So it runs in threads of its own that nobody waits for: one that is stuck when the
// transport ends is left behind, and its answer is dropped.
class NameResolver {
 public:
  using Answer = std::function<void(Result<std::vector<Endpoint>>)>;

  NameResolver();
  ~NameResolver();
  NameResolver(const NameResolver&) = delete;
  NameResolver& operator=(const NameResolver&) = delete;

  // Calls `answer` from any thread, the caller's included (numeric addresses). From a thread of its
  // own never after close(). Thread-safe.
  void resolve(const std::string& host, std::uint16_t port, Answer answer);
  // Drops all questions, those to come included. Thread-safe.
  void close();

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace hora::launcher
