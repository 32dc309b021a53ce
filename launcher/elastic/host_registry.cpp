// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/host_registry.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::elastic {

// A duplicate with different slots is an error, because either line could be the outdated one.

namespace {

// As in a hostfile, or as -H takes them. An invalid line is reported as the form that it resembles.
Result<std::vector<Host>> parse_line(std::string_view line, const std::string& place) {
  auto named = parse_hostfile_line(line, place);
  if (named || line.find(',') == std::string_view::npos) return named;
  return parse_host_list(line, place);
}

}  // namespace

Result<std::vector<Host>> parse_discovered_hosts(std::string_view output, int default_slots) {
  std::vector<Host> hosts;
  std::size_t number = 0;
  for (std::string_view line : split(without_mark(output), '\n')) {
    ++number;
    // '#' begins a comment.
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string place = "line " + std::to_string(number);
    auto named = parse_line(line, place);
    if (!named) return std::move(named).error();
    for (Host& host : *named) {
      // Horovod's scripts may leave the slots out; --slots-per-host fills them in.
      if (!host.slots) host.slots = default_slots;
      const auto known = std::find_if(hosts.begin(), hosts.end(), [&host](const Host& other) {
        return other.name == host.name;
      });
      if (known == hosts.end() && hosts.size() == kMostDiscovered) {
        return make_error(ErrorCode::kUsage,
                          place + ": more than " + std::to_string(kMostDiscovered) + " hosts");
      }
      if (known == hosts.end()) {
        hosts.push_back(std::move(host));
      } else if (*known != host) {
        return make_error(ErrorCode::kUsage, place + ": host " + host.name + " was listed as " +
                                                 quote(format_host(*known)) + " before, now as " +
                                                 quote(format_host(host)) +
                                                 "; expected each host once");
      }
    }
  }
  return hosts;
}

// Which hosts are listed, and which ones are barred after a failure, for good or for a growing
// time.

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

// Of two hosts the one with the higher ranks has to leave, because the others keep their order
// without it. But a host that reaches none of several others is cut off itself, whatever its ranks;
// only the last one that knows the state of the training cannot be spared. One epoch without such a
// failure clears all: until then every epoch counts against some host, so there is an end.
std::vector<UnreachedHosts::LeftOut> UnreachedHosts::end_epoch(const std::vector<Member>& members) {
  const auto pairs = std::exchange(pairs_, {});
  if (pairs.empty()) spoilt_.clear();
  std::map<std::size_t, std::set<std::size_t>> missing;
  for (const auto& [one, other] : pairs) {
    missing[one].insert(other);
    missing[other].insert(one);
  }
  const auto is_alone = [&](std::size_t host) {
    return members.size() > 2 && missing[host].size() == members.size() - 1;
  };
  const auto can_be_spared = [&](std::size_t host) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i != host && members[i].knows_state) return true;
    }
    return false;
  };
  std::set<std::size_t> suspects;
  for (const auto& [one, other] : pairs) {
    suspects.insert(is_alone(one) && can_be_spared(one) ? one : other);
  }
  std::vector<LeftOut> left_out;
  for (const std::size_t host : suspects) {
    if (++spoilt_[members[host].name] < kMostEpochs) continue;
    spoilt_.erase(members[host].name);
    left_out.push_back({host, {}});
    for (const std::size_t each : missing[host]) {
      left_out.back().missing.push_back(members[each].name);
    }
  }
  return left_out;
}

}  // namespace hora::launcher::elastic
