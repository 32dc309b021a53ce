// --chaos: what a Supervisor does to its ranks on purpose.
#include <algorithm>

#include "launcher/job/cut_order.h"
#include "launcher/report/outcome_text.h"
#include "launcher/supervisor/supervisor.h"

namespace hora::launcher {

Status Supervisor::plan_chaos() {
  if (!spec_.chaos) return Ok{};
  auto steps = schedule_chaos(*spec_.chaos, plan_);
  if (!steps) return std::move(steps).error();
  chaos_steps_ = std::move(*steps);
  return Ok{};
}

void Supervisor::begin_chaos() {
  const auto start = os::Clock::now();
  for (const ChaosStep& step : chaos_steps_) {
    loop_->call_at(start + step.at, [this, step, start] { strike(step, start); });
  }
}

void Supervisor::strike(const ChaosStep& step, os::Clock::time_point start) {
  if (is_over()) return;
  const auto& link = hosts_[step.host].link;
  ChaosStrike strike;
  strike.at = std::chrono::duration_cast<Milliseconds>(os::Clock::now() - start);
  strike.host = name_of(step.host);
  strike.rank = step.rank;
  strike.signal = step.signal;
  strike.heals = step.heals;
  if (step.is_cut()) strike.peer = name_of(step.peer);
  strike.sent =
      link && link->is_open() && (step.is_cut() || state_->outcome().exits.count(step.rank) == 0);
  if (strike.sent) send_strike(step, *link);
  if (step.is_cut()) {
    events_.emit("chaos_cut", {{"host", strike.host},
                               {"peer", strike.peer},
                               {"cut", !strike.heals},
                               {"sent", strike.sent},
                               {"at_ms", std::int64_t{strike.at.count()}}});
  } else {
    events_.emit("chaos", {{"rank", std::int64_t{strike.rank}},
                           {"host", strike.host},
                           {"signal", std::int64_t{strike.signal}},
                           {"sent", strike.sent},
                           {"at_ms", std::int64_t{strike.at.count()}}});
  }
  tell("chaos: " + strike_text(strike) + "\n");
  chaos_strikes_.push_back(std::move(strike));
}

void Supervisor::send_strike(const ChaosStep& step, HostLink& link) const {
  if (!step.is_cut()) {
    std::string payload = u32_payload(static_cast<std::uint32_t>(step.rank));
    append_u32(payload, static_cast<std::uint32_t>(step.signal));
    return link.send(FrameType::kSignalRank, payload);
  }
  const std::vector<int> peers = cut_peers(chaos_steps_, step.host);
  const auto place = std::find(peers.begin(), peers.end(), step.peer) - peers.begin();
  std::string payload = u32_payload(static_cast<std::uint32_t>(place));
  append_u32(payload, step.heals ? 0 : 1);
  link.send(FrameType::kCut, payload);
}

// What the hosts' agents have to be able to do before anything starts.
Status Supervisor::add_cuts(std::vector<HostOrder>& orders) const {
  for (std::size_t host = 0; host < orders.size(); ++host) {
    for (const int peer : cut_peers(chaos_steps_, static_cast<int>(host))) {
      auto cut = cut_order(network_of_host(static_cast<int>(host)), network_of_host(peer),
                           {hosts_[host].hello->ssh_connection, hosts_[peer].hello->ssh_connection},
                           identity_.rendezvous_port);
      if (!cut) return std::move(cut).error();
      orders[host].cuts.push_back(std::move(*cut));
    }
  }
  return Ok{};
}

}  // namespace hora::launcher
