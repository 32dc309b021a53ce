// SPDX-License-Identifier: Apache-2.0
// What a broken or hostile peer may send on the agent protocol. The first byte says how the rest is
// cut into reads; frames must come out the same however it is cut, and a message that decodes must
// survive its own encoding.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

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
void check_message(std::string_view bytes) {
  const auto message = decode<Message>(bytes);
  if (!message) {
    check(!message.error().message.empty());
    return;
  }
  const auto again = decode<Message>(encode(*message));
  check(again.has_value() && *again == *message);
}

// A message that was read gives the same payload again.
template <typename Variant>
void check_frame(const Frame& frame) {
  visit_type(std::type_identity<Variant>{}, frame.type,
             [&frame]<typename Message>(std::type_identity<Message>) {
               if constexpr (Message::kRule.layout != Layout::kFrames) {
                 const auto message = read_payload<Message>(frame);
                 if (!message) return check(!message.error().message.empty());
                 const std::string bytes = encode(*message);
                 const auto again = read_payload<Message>({frame.type, bytes});
                 check(again && encode(*again) == bytes);
               }
             });
}

void check_payload(std::string_view bytes) {
  check_message<Hello>(bytes);
  check_message<Probe>(bytes);
  check_message<ProbeResult>(bytes);
  check_message<BundlePart>(bytes);
  check_message<BundleManifest>(bytes);
  check_message<ShipFile>(bytes);
  check_message<HostOrder>(bytes);
  check_message<Started>(bytes);
  check_message<RankExit>(bytes);
  check_message<GpuFault>(bytes);
  check_message<Goodbye>(bytes);
  check_message<Failure>(bytes);
  check_message<LogLine>(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t step = data[0] + 1u;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<Frame> frames = frames_of(bytes, step);
  check(frames == frames_of(bytes, bytes.size() + 1));
  for (const Frame& frame : frames) {
    check_payload(frame.payload);
    check_frame<AgentMessage>(frame);
    check_frame<LauncherMessage>(frame);
  }

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
