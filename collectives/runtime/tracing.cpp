// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/tracing.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "collectives/negotiation/wire.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

namespace {

constexpr std::string_view kRankMark = "{rank}";
constexpr int kClockRounds = 6;

std::int64_t now_ns() { return nanoseconds_of(Clock::now()); }

}  // namespace

std::optional<std::string> own_timeline_path(const std::string& path, int rank) {
  const std::size_t mark = path.find(kRankMark);
  if (mark == std::string::npos) return rank == 0 ? std::optional(path) : std::nullopt;
  std::string own = path;
  return own.replace(mark, kRankMark.size(), std::to_string(rank));
}

// In each round, every rank sends the time at which it sends and the time at which it received the
// previous round.
Result<ClockOffset> measure_clock_offset(OobAllgather& oob, const World& world) {
  ClockOffset clock;
  const auto& hosts = world.hosts;
  // One machine, one monotonic clock.
  if (std::all_of(hosts.begin(), hosts.end(), [&](auto host) { return host == hosts[0]; })) {
    return clock;
  }
  std::vector<std::int32_t> all(hosts.size());
  std::iota(all.begin(), all.end(), 0);
  const Deadline deadline = Clock::now() + world.settings.start_timeout;
  std::int64_t received_before = 0;
  std::int64_t sent_before = 0;
  for (int round = 0; round < kClockRounds; ++round) {
    // Each message bounds the offset from one side. Several rounds make it likely that some message
    // in each direction was not delayed.
    const std::int64_t sent = now_ns();
    WireWriter mine;
    mine.integer(sent);
    mine.integer(received_before);
    auto parts = oob.exchange(0, all, {mine.take()}, deadline);
    const std::int64_t received = now_ns();
    if (!parts) return std::move(parts).error().with_context("comparing the hosts' clocks");
    WireReader zero(parts->front());
    const std::int64_t zero_sent = zero.integer();
    const std::int64_t zero_received = zero.integer();
    clock.received(zero_sent, received);
    if (round > 0) clock.answered(sent_before, zero_received);
    received_before = received;
    sent_before = sent;
  }
  // Rank 0 is the reference clock; ranks on its host share it.
  const auto own = hosts[static_cast<std::size_t>(world.settings.rank)];
  return own == hosts[0] ? ClockOffset() : clock;
}

Timeline::Options timeline_options(const World& world, const ClockOffset& clock, std::string path,
                                   bool mark_cycles) {
  Timeline::Options options;
  options.path = std::move(path);
  options.identity.rank = world.settings.rank;
  options.identity.size = world.settings.size;
  options.identity.hostname = world.settings.hostname;
  options.identity.clock_offset_ns = clock.offset_ns();
  options.identity.clock_error_ns = clock.error_ns();
  options.identity.mark_cycles = mark_cycles;
  options.most_bytes = static_cast<std::uint64_t>(world.settings.timeline_limit_mb) << 20;
  return options;
}

}  // namespace hora::collectives
