// SPDX-License-Identifier: Apache-2.0
// The agent's bytes, as they are sent to a host that lacks it. Read once, packed once, shared by
// all hosts; nothing is read before the first host asks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

class AgentPayload {
 public:
  using Bytes = std::shared_ptr<const std::string>;
  using Receiver = std::function<void(Result<Bytes>)>;

  // `path` is the agent on this machine.
  explicit AgentPayload(std::string path) : path_(std::move(path)) {}
  ~AgentPayload() { close(); }
  AgentPayload(const AgentPayload&) = delete;
  AgentPayload& operator=(const AgentPayload&) = delete;

  // Calls `receiver` once, from a thread of its own or, when the bytes are there already, from
  // the caller's. Thread-safe.
  void get(bool gzip, Receiver receiver);

  // Waits for the thread; receivers that still wait are dropped, and none is called after that.
  void close();

  // The size of the agent's file, without reading it. 0 when it is not there.
  std::uint64_t size_bytes() const;

 private:
  void prepare();

  const std::string path_;
  std::mutex mutex_;
  std::thread worker_;
  bool started_ = false;
  bool closing_ = false;
  std::unique_ptr<Result<Bytes>> raw_;  // guarded by mutex_, null until prepared
  std::unique_ptr<Result<Bytes>> packed_;
  std::vector<std::pair<bool, Receiver>> waiting_;
};

}  // namespace hora::launcher
