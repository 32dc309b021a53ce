// SPDX-License-Identifier: Apache-2.0
// A round asks every host once. Its figures are published when all have answered, or when the next
// round begins: a host that is silent then is not in them.
#include "launcher/supervisor/rank_watch.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace hora::launcher {

namespace {

// The first figures come soon; two rounds make them.
constexpr Milliseconds kFirstPause{1'000};
constexpr Milliseconds kFirstPausePerHost{10};

}  // namespace

void RankWatch::watch(Milliseconds interval) {
  const Milliseconds before = std::exchange(interval_, interval);
  const bool is_sooner =
      interval > Milliseconds(0) && (before == Milliseconds(0) || interval < before);
  // Later: from the next round on.
  if (interval > Milliseconds(0) && !is_sooner) return;
  loop_.cancel(std::exchange(timer_, 0));
  waiting_.clear();
  before_.clear();
  now_.clear();
  if (is_sooner) ask_all();
}

Milliseconds RankWatch::pause() const {
  const auto hosts = static_cast<Milliseconds::rep>(handlers_.plan().hosts.size());
  return before_.empty() ? std::max(kFirstPause, hosts * kFirstPausePerHost) : interval_;
}

// The samples of the round before are the beginning of this one's figures.
void RankWatch::ask_all() {
  timer_ = 0;
  if (!waiting_.empty()) publish();
  // What publish() calls may have called watch().
  if (interval_ == Milliseconds(0) || timer_ != 0) return;
  before_ = std::exchange(now_, {});
  waiting_.clear();
  const int hosts = static_cast<int>(handlers_.plan().hosts.size());
  for (int host = 0; host < hosts; ++host) {
    if (handlers_.ask(host)) waiting_.insert(host);
  }
  timer_ = loop_.call_after(pause(), [this] { ask_all(); });
}

void RankWatch::on_samples(int host, const RankSamples& samples) {
  if (waiting_.erase(host) == 0) return;
  const auto at = Clock::now();
  for (const RankSample& sample : samples.ranks) now_[sample.rank] = {sample, at};
  if (waiting_.empty()) publish();
}

void RankWatch::publish() {
  if (before_.empty()) return;
  JobFigures figures = figures_between(before_, now_);
  std::map<int, const std::string*> hosts;
  for (const HostPlan& host : handlers_.plan().hosts) {
    for (const Slot& slot : host.slots) hosts[slot.rank] = &host.host.name;
  }
  for (RankFigures& rank : figures.worst) {
    if (const auto host = hosts.find(rank.rank); host != hosts.end()) rank.host = *host->second;
  }
  handlers_.publish(figures);
}

}  // namespace hora::launcher
