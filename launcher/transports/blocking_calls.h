// SPDX-License-Identifier: Apache-2.0
// Questions whose answers may take long, without blocking the loop that asks.
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
// interrupted. So it runs in threads of its own that are not awaited: one that is stuck when the
// transport ends is abandoned, and its answer is dropped.
class BlockingCalls {
 public:
  using Answer = std::function<void()>;
  using Question = std::function<Answer()>;
  using Failed = std::function<void(Error)>;

  explicit BlockingCalls(int most_threads);
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  // Runs `question` in one of the threads, and there what it returns, never after close(). `failed`
  // is called at once when there is no thread for it. Thread-safe.
  void ask(Question question, const Failed& failed);
  // Drops all questions, those to come included. Thread-safe.
  void close();

  // The addresses of a host. From the caller's thread where they are numeric.
  using Endpoints = std::function<void(Result<std::vector<Endpoint>>)>;
  void resolve(const std::string& host, std::uint16_t port, const Endpoints& answer);

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace hora::launcher
