// What the ranks share beside their connections: memory within a host, links between leaders.
#include <algorithm>
#include <numeric>

#include "collectives/control/hosts_bootstrap.h"
#include "collectives/control/ring_channel.h"
#include "collectives/memory/futex.h"
#include "collectives/runtime/engine.h"

namespace hora::collectives {

std::vector<std::int32_t> Engine::world_ranks() const {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(world_.settings.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

const LeaderPlan* Engine::leaders() const {
  FastPath* const fast_path = channel_->fast_path();
  LeaderFastPath* const leaders = fast_path == nullptr ? nullptr : fast_path->between_hosts();
  return leaders == nullptr ? nullptr : &leaders->plan();
}

// Where all ranks are on one host, messages go through memory that they share. Where that cannot be
// had, they keep to their connections.
Status Engine::share_memory() {
  const Settings& settings = world_.settings;
  const auto& hosts = world_.hosts;
  if (std::any_of(hosts.begin(), hosts.end(), [&](auto host) { return host != hosts.front(); })) {
    return connect_hosts();
  }
  const std::vector<std::int32_t> all = world_ranks();
  const std::size_t bytes = RingLayout{settings.size}.bytes();
  const auto allgather = [&](const std::string& mine) {
    return oob_->exchange(0, all, {mine}, Clock::now() + settings.start_timeout);
  };
  auto segment = settings.size == 1 ? Segment::open_private(bytes)
                                    : Segment::open(all, settings.rank, bytes, allgather);
  if (!segment) {
    why_no_fast_path_ = segment.error().message;
    if (segment.error().code == ErrorCode::kUnavailable) return Ok{};
    return std::move(segment).error();
  }
  channel_ = std::make_unique<RingChannel>(std::move(channel_), std::move(*segment), settings.rank,
                                           settings.size, cores_for(settings.size));
  oob_->use(*channel_);
  return Ok{};
}

// On several hosts messages stay with the connections; beside them the leaders of the hosts get
// links of their own, for what is small.
Status Engine::connect_hosts() {
  const Settings& settings = world_.settings;
  if (channel_->sockets() == nullptr) return Ok{};
  HostsParts parts;
  parts.plan = plan_leaders(world_.hosts, settings.rank);
  parts.spin = cores_for(static_cast<int>(parts.plan.here().size()));
  const LeaderPlan plan = parts.plan;
  const auto scope = [](int host) { return scope_within(0, host); };
  for (int host = 0; host < plan.hosts(); ++host) {
    oob_->define_scope(scope(host), plan.members[static_cast<std::size_t>(host)]);
  }
  const auto allgather = [&](std::int32_t where, const std::vector<std::int32_t>& who,
                             const std::string& mine) {
    return oob_->exchange(where, who, {mine}, Clock::now() + settings.start_timeout);
  };
  HostsBootstrap bootstrap;
  bootstrap.all = [&](const std::string& mine) { return allgather(0, world_ranks(), mine); };
  bootstrap.here = [&](const std::string& mine) {
    return allgather(scope(plan.host), plan.here(), mine);
  };
  bootstrap.self = {settings.rank, settings.size, settings.job_id, settings.rendezvous_token, {}};
  bootstrap.address = world_.address;
  const Status met = bootstrap_hosts(bootstrap, channel_, parts);
  for (int host = 0; host < plan.hosts(); ++host) oob_->forget_scope(scope(host));
  if (!met) {
    why_no_fast_path_ = met.error().message;
    if (met.error().code == ErrorCode::kUnavailable) return Ok{};
    return met;
  }
  channel_ = std::make_unique<HostsChannel>(std::move(parts));
  oob_->use(*channel_);
  return Ok{};
}

}  // namespace hora::collectives
