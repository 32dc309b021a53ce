// SPDX-License-Identifier: Apache-2.0
// --chaos: what a Supervisor does to its ranks on purpose.
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
  strike.sent = link && link->is_open() && state_->outcome().exits.count(step.rank) == 0;
  if (strike.sent) {
    std::string payload = u32_payload(static_cast<std::uint32_t>(step.rank));
    append_u32(payload, static_cast<std::uint32_t>(step.signal));
    link->send(FrameType::kSignalRank, payload);
  }
  events_.emit("chaos", {{"rank", std::int64_t{strike.rank}},
                         {"host", strike.host},
                         {"signal", std::int64_t{strike.signal}},
                         {"sent", strike.sent},
                         {"at_ms", std::int64_t{strike.at.count()}}});
  tell("chaos: " + strike_text(strike) + "\n");
  chaos_strikes_.push_back(std::move(strike));
}

}  // namespace hora::launcher
