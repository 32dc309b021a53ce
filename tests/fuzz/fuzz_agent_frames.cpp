// SPDX-License-Identifier: Apache-2.0
// What a broken or hostile peer may send on the agent protocol. The first byte says how the rest is
// cut into reads; frames must come out the same however it is cut, and a message that decodes must
// survive its own encoding.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"

using namespace hora::launcher;

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

std::vector<Frame> frames_of(std::string_view bytes, std::size_t step) {
  FrameReader reader;
  std::vector<Frame> frames;
  while (true) {
    auto frame = reader.next();
    if (!frame) return frames;
    if (frame->has_value()) {
      frames.push_back(std::move(**frame));
      continue;
    }
    if (bytes.empty()) return frames;
    reader.feed(bytes.substr(0, step));
    bytes.remove_prefix(std::min(step, bytes.size()));
  }
}

template <typename Message>
void check_message(hora::Result<Message> (*decode)(std::string_view), std::string_view bytes) {
  const auto message = decode(bytes);
  if (!message) {
    check(!message.error().message.empty());
    return;
  }
  const auto again = decode(encode(*message));
  check(again.has_value() && *again == *message);
}

void check_payload(std::string_view bytes) {
  check_message(&decode_hello, bytes);
  check_message(&decode_probe, bytes);
  check_message(&decode_probe_result, bytes);
  check_message(&decode_bundle_part, bytes);
  check_message(&decode_bundle_manifest, bytes);
  check_message(&decode_ship_file, bytes);
  check_message(&decode_host_order, bytes);
  check_message(&decode_started, bytes);
  check_message(&decode_rank_exit, bytes);
  check_message(&decode_gpu_fault, bytes);
  check_message(&decode_goodbye, bytes);
  check_message(&decode_failure, bytes);
  check_message(&decode_log_line, bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t step = data[0] + 1u;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<Frame> frames = frames_of(bytes, step);
  check(frames == frames_of(bytes, bytes.size() + 1));
  for (const Frame& frame : frames) check_payload(frame.payload);

  MagicFinder finder;
  std::string rest;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    if (!finder.feed(bytes.substr(at, step), rest)) continue;
    const std::size_t found = bytes.find(kAgentMagic);
    check(found != std::string_view::npos && finder.noise() == bytes.substr(0, found));
    return 0;
  }
  check(bytes.find(kAgentMagic) == std::string_view::npos);
  return 0;
}
