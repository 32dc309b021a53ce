// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/tracing.h"

namespace hora::collectives {

namespace {

constexpr std::string_view kRankMark = "{rank}";

}  // namespace

std::optional<std::string> own_timeline_path(const std::string& path, int rank) {
  const std::size_t mark = path.find(kRankMark);
  if (mark == std::string::npos) return rank == 0 ? std::optional(path) : std::nullopt;
  std::string own = path;
  return own.replace(mark, kRankMark.size(), std::to_string(rank));
}

ClockOffset compare_clocks(const OobAllgather& oob, const World& world) {
  ClockOffset clock;
  const auto own = world.hosts[static_cast<std::size_t>(world.settings.rank)];
  if (own == world.hosts[0]) return clock;
  // Each message bounds the offset from one side. Several exchanges make it likely that some
  // message in each direction was not delayed.
  for (const ClockSample& sample : oob.samples()) {
    clock.received(sample.zero_ns, sample.received_ns);
    clock.answered(sample.sent_ns, sample.zero_ns);
  }
  return clock;
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
