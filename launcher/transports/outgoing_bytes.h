// SPDX-License-Identifier: Apache-2.0
// Bytes that wait to be sent to a host: its own, followed once by the agent, which all hosts share.
// [pure]
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "launcher/transports/byte_queue.h"

namespace hora::launcher {

class OutgoingBytes {
 public:
  using Payload = std::shared_ptr<const std::string>;

  void append(std::string_view bytes) { own_.append(bytes); }
  // Sent after all bytes that were appended before. Nothing may be appended until it has gone.
  void ship(Payload payload) {
    payload_ = std::move(payload);
    position_ = 0;
  }
  bool shipping() const { return payload_ != nullptr; }

  // The next bytes; empty: nothing. Not all of them, if bytes and a payload wait.
  std::string_view front() const {
    if (!own_.empty()) return own_.front();
    return payload_ ? std::string_view(*payload_).substr(position_) : std::string_view();
  }
  void pop(std::size_t count) {
    if (!own_.empty()) return own_.pop(count);
    if (!payload_) return;
    position_ += count;
    if (position_ == payload_->size()) payload_.reset();
  }

  std::size_t own_size() const { return own_.size(); }
  void drop_payload() { payload_.reset(); }
  void clear() {
    own_.clear();
    payload_.reset();
  }

 private:
  ByteQueue own_;
  Payload payload_;
  std::size_t position_ = 0;  // in the payload
};

}  // namespace hora::launcher
