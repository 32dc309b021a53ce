// SPDX-License-Identifier: Apache-2.0
// Which hosts are listed, and which ones are barred after a failure, for good or for a growing
// time.
#include "launcher/elastic/host_registry.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hora::launcher::elastic {

HostRegistry::HostRegistry(std::optional<CooldownRange> cooldown, std::function<double()> random)
    : cooldown_(cooldown), random_(std::move(random)) {}

HostRegistry::Entry* HostRegistry::find(const std::string& name) {
  return const_cast<Entry*>(std::as_const(*this).find(name));
}

const HostRegistry::Entry* HostRegistry::find(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&name](const Entry& entry) { return entry.host.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

// A host that disappears from the list keeps its history, in case it comes back.
void HostRegistry::list(const std::vector<Host>& hosts) {
  for (Entry& entry : entries_) entry.listed = false;
  for (const Host& host : hosts) {
    if (Entry* known = find(host.name)) {
      known->host = host;
      known->listed = true;
    } else {
      entries_.push_back({host, true, 0, std::nullopt});
    }
  }
}

void HostRegistry::forget_unlisted() {
  for (Entry& entry : entries_) {
    if (!entry.listed) entry = {entry.host, false, 0, std::nullopt};
  }
}

void HostRegistry::blacklist(const std::string& name, TimePoint now) {
  Entry* entry = find(name);
  // Several ranks of a host fail together; that counts once.
  if (entry == nullptr || is_blacklisted(name, now)) return;
  ++entry->failures;
  if (!cooldown_) {
    entry->barred_until = TimePoint::max();
    return;
  }
  const auto lo = static_cast<double>(cooldown_->lo.count());
  const auto hi = static_cast<double>(cooldown_->hi.count());
  // Exponential back-off within the user's range; the random part spreads hosts that failed
  // together.
  const double wanted = std::ldexp(lo, std::min(entry->failures, 32)) + random_() * lo;
  const std::chrono::duration<double> delay(std::clamp(wanted, lo, hi));
  entry->barred_until = now + std::chrono::duration_cast<Clock::duration>(delay);
}

bool HostRegistry::is_blacklisted(const std::string& name, TimePoint now) const {
  const Entry* entry = find(name);
  return entry != nullptr && entry->barred_until && *entry->barred_until > now;
}

std::optional<HostRegistry::TimePoint> HostRegistry::next_return(TimePoint now) const {
  std::optional<TimePoint> earliest;
  for (const Entry& entry : entries_) {
    if (!entry.listed || !entry.barred_until || *entry.barred_until <= now) continue;
    if (*entry.barred_until == TimePoint::max()) continue;
    if (!earliest || *entry.barred_until < *earliest) earliest = entry.barred_until;
  }
  return earliest;
}

std::vector<Host> HostRegistry::available(TimePoint now) const {
  std::vector<Host> hosts;
  for (const Entry& entry : entries_) {
    const bool barred = entry.barred_until && *entry.barred_until > now;
    if (entry.listed && !barred && entry.host.slots.value_or(0) > 0) hosts.push_back(entry.host);
  }
  return hosts;
}

}  // namespace hora::launcher::elastic
