// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/channel_bootstrap.h"

#include <algorithm>

#include "collectives/control/hosts_channel.h"
#include "collectives/control/ring_channel.h"
#include "collectives/memory/futex.h"

namespace hora::collectives {

namespace {

// On several hosts, messages stay on the TCP connections; in addition, the leaders of the hosts get
// links of their own for small operations.
Status connect_hosts(const World& world, OobAllgather& oob,
                     std::unique_ptr<ControlChannel>& channel, OwnSockets sockets,
                     BootstrapResult& met) {
  const Settings& settings = world.settings;
  // A world of one, or a channel of a test.
  if (channel->sockets() == nullptr) return Ok{};
  HostsParts parts;
  parts.plan = plan_leaders(world.hosts, settings.rank);
  parts.spin = cores_for(static_cast<int>(parts.plan.here().size()));
  const LeaderPlan plan = parts.plan;
  const auto scope = [](int host) { return scope_within(0, host); };
  for (int host = 0; host < plan.hosts(); ++host) {
    oob.define_scope(scope(host), plan.members[static_cast<std::size_t>(host)]);
  }
  const auto allgather = [&](std::int32_t where, const std::vector<std::int32_t>& who,
                             const std::string& mine) {
    return oob.exchange(where, who, {mine}, Clock::now() + settings.start_timeout);
  };
  HostsBootstrap bootstrap;
  bootstrap.all = [&](const std::string& mine) { return allgather(0, world.ranks(), mine); };
  bootstrap.here = [&](const std::string& mine) {
    return allgather(scope(plan.host), plan.here(), mine);
  };
  bootstrap.own = std::move(sockets);
  for (const RankInfo& each : world.rank_infos) bootstrap.cards.push_back(each.hosts_card);
  bootstrap.broken_off = [&] { return oob.is_ending(); };
  bootstrap.timeout = settings.start_timeout;
  Status extended = bootstrap_hosts(std::move(bootstrap), channel, parts);
  for (int host = 0; host < plan.hosts(); ++host) oob.forget_scope(scope(host));
  if (!extended) {
    met.why_no_fast_path = extended.error().message;
    // All ranks have agreed on this: without the fast path, everything goes through rank 0. Any
    // other error means that they could not agree.
    if (extended.error().code == ErrorCode::kUnavailable) return Ok{};
    return extended;
  }
  met.round_trip = parts.round_trip;
  channel = std::make_unique<HostsChannel>(std::move(parts));
  return Ok{};
}

}  // namespace

// If all ranks are on one host, messages go through shared memory; if memory cannot be shared, they
// stay on the TCP connections.
Status extend_channel(const World& world, OobAllgather& oob,
                      std::unique_ptr<ControlChannel>& channel, OwnSockets sockets,
                      BootstrapResult& met) {
  const Settings& settings = world.settings;
  const auto& hosts = world.hosts;
  if (std::any_of(hosts.begin(), hosts.end(), [&](auto host) { return host != hosts.front(); })) {
    return connect_hosts(world, oob, channel, std::move(sockets), met);
  }
  const std::vector<std::int32_t> all = world.ranks();
  const std::size_t bytes = RingLayout{settings.size}.bytes();
  const auto allgather = [&](const std::string& mine) {
    return oob.exchange(0, all, {mine}, Clock::now() + settings.start_timeout);
  };
  auto segment = settings.size == 1 ? Segment::open_private(bytes)
                                    : Segment::open(all, settings.rank, bytes, allgather);
  if (!segment) {
    met.why_no_fast_path = segment.error().message;
    if (segment.error().code == ErrorCode::kUnavailable) return Ok{};
    return std::move(segment).error();
  }
  channel = std::make_unique<RingChannel>(std::move(channel), std::move(*segment), settings.rank,
                                          settings.size, cores_for(settings.size));
  return Ok{};
}

}  // namespace hora::collectives
