// SPDX-License-Identifier: Apache-2.0
// Judges the links between hosts.  [pure]
//
// There is no absolute standard for a network, so a link is compared with the median of the set.
// Also the interfaces that the user has chosen for NCCL.
#include <algorithm>
#include <cstdio>

#include "launcher/doctor/findings.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::doctor {

namespace {

// With fewer links, the median means nothing.
constexpr std::size_t kLeastLinks = 4;
// In multiples of the median.
constexpr double kFarOff = 8;
// Below 2 ms, a multiple of the median is only noise.
constexpr double kLeastLate_us = 2'000;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Link {
  std::size_t from, to;
  double rtt_us, mbit_s;
};

bool is_measured(const Json& answer) {
  return member(answer, "error").is_null() && member(answer, "rtt_us").is_number() &&
         member(answer, "mbit_s").is_number();
}

// The words of NCCL_SOCKET_IFNAME: beginnings of names, or after '=' whole ones; after '^' those
// that NCCL must not take. NCCL's own list, which leaves out lo, does not count then.
class NcclInterfaces {
 public:
  explicit NcclInterfaces(std::string_view text) {
    excludes_ = text.starts_with('^');
    if (excludes_) text.remove_prefix(1);
    is_exact_ = text.starts_with('=');
    if (is_exact_) text.remove_prefix(1);
    words_ = split(text, ',');
  }

  bool selects(std::string_view name) const {
    const bool is_listed = std::any_of(words_.begin(), words_.end(), [&](std::string_view word) {
      word = word.substr(0, word.find(':'));  // "eth0:1" has a port
      return is_exact_ ? name == word : name.starts_with(word);
    });
    return is_listed != excludes_;
  }

 private:
  bool excludes_ = false;
  bool is_exact_ = false;
  std::vector<std::string_view> words_;
};

void nccl_interfaces(const Examination& set, std::vector<Finding>& out) {
  const std::string& value = set.nccl_interfaces;
  if (value.empty() || set.hosts.size() < 2) return;
  const NcclInterfaces chosen(value);
  const std::string setting = "NCCL_SOCKET_IFNAME=" + value;
  for (const HostExamination& host : set.hosts) {
    if (!host.hello || host.hello->interfaces.empty()) continue;
    std::vector<std::string> names;
    const InterfaceInfo* first = nullptr;
    for (const InterfaceInfo& nic : host.hello->interfaces) {
      if (std::find(names.begin(), names.end(), nic.name) == names.end()) {
        names.push_back(nic.name);
      }
      // Of several, NCCL publishes the address of the first.
      if (first == nullptr && chosen.selects(nic.name)) first = &nic;
    }
    // Only NCCL reads it, for GPUs.
    const Json& gpus = member(host.machine, "gpus.devices");
    const bool has_gpus = gpus.is_number_integer() && gpus.get<int>() > 0;
    const Severity severity = has_gpus ? Severity::kError : Severity::kWarning;
    if (first == nullptr) {
      out.push_back({severity,
                     "D_NCCL_INTERFACE",
                     {host.name},
                     setting + " selects none of the interfaces " + join(names, ", "),
                     "NCCL fails there: 'no socket interface found'",
                     "unset it, or name an interface of every host, separated by commas",
                     {}});
    } else if (first->loopback) {
      out.push_back({severity,
                     "D_NCCL_INTERFACE",
                     {host.name},
                     setting + " selects " + first->name,
                     "NCCL gives the other hosts the address " + first->address +
                         ", at which they find only themselves",
                     value.starts_with('^')
                         ? "exclude it, too: " + setting + "," + first->name
                         : "name an interface that leads to the other hosts, or unset it",
                     {}});
    }
  }
}

// The links that could be measured, with the medians.
struct Links {
  std::vector<Link> all;
  double usual_us = 0;
  double usual_mbit_s = 0;

  explicit Links(const Examination& set) {
    std::vector<double> times, rates;
    for (std::size_t from = 0; from < set.hosts.size(); ++from) {
      for (const auto& [to, answer] : set.hosts[from].peers) {
        if (!is_measured(answer)) continue;
        all.push_back({from, static_cast<std::size_t>(to), answer["rtt_us"].get<double>(),
                       answer["mbit_s"].get<double>()});
        times.push_back(all.back().rtt_us);
        rates.push_back(all.back().mbit_s);
      }
    }
    usual_us = median(std::move(times));
    usual_mbit_s = median(std::move(rates));
  }

  bool slow(const Link& link) const {
    return all.size() >= kLeastLinks && link.mbit_s < usual_mbit_s / kFarOff;
  }
  bool late(const Link& link) const {
    return all.size() >= kLeastLinks && link.rtt_us > kFarOff * usual_us &&
           link.rtt_us > kLeastLate_us;
  }
};

void broken_way(const std::string& self, const std::string& other, const Json& answer,
                std::vector<Finding>& out) {
  const Json& error = member(answer, "error");
  if (error.is_string()) {
    out.push_back({Severity::kError,
                   "D_ROUTE",
                   {self, other},
                   self + " cannot connect to " + other + ": " + error.get<std::string>(),
                   "ranks connect to each other on ports that the system chooses; a firewall or a "
                   "missing route between hosts makes a job hang or fail at its first collective",
                   "allow TCP between the hosts, or select a network that works with "
                   "--network-interfaces; on " +
                       self + ": ping " + other,
                   {}});
    return;
  }
  const Json& mtu = member(answer, "mtu");
  const Json& passes = member(answer, "path_mtu");
  // Small packets pass and full ones do not: the classic fault of tunnels and jumbo frames.
  if (mtu.is_number_integer() && passes.is_number_integer() && passes.get<int>() < mtu.get<int>()) {
    const std::string least = std::to_string(passes.get<int>());
    out.push_back(
        {Severity::kError,
         "D_MTU",
         {self, other},
         "packets of " + std::to_string(mtu.get<int>()) + " bytes are dropped from " + self +
             " to " + other + ", the largest that does has " + least,
         "small messages arrive and large ones are lost: a job starts and then hangs",
         "the same MTU on every interface and switch on the way: ip link set DEV mtu " + least,
         {}});
  }
}

}  // namespace

std::vector<std::pair<int, int>> doubtful_ways(const Examination& examination) {
  const Links links(examination);
  std::vector<std::pair<int, int>> out;
  for (const Link& link : links.all) {
    if (links.slow(link) || links.late(link)) {
      out.emplace_back(static_cast<int>(link.from), static_cast<int>(link.to));
    }
  }
  return out;
}

// Each number for itself: a disturbance only makes a measurement worse.
Json better_of(const Json& first, Json second) {
  if (!is_measured(first)) return second;
  if (!is_measured(second)) return first;
  second["rtt_us"] = std::min(first["rtt_us"].get<double>(), second["rtt_us"].get<double>());
  second["mbit_s"] = std::max(first["mbit_s"].get<double>(), second["mbit_s"].get<double>());
  return second;
}

std::vector<Finding> link_findings(const Examination& examination) {
  std::vector<Finding> out;
  nccl_interfaces(examination, out);
  for (const HostExamination& host : examination.hosts) {
    for (const auto& [to, answer] : host.peers) {
      broken_way(host.name, examination.hosts[static_cast<std::size_t>(to)].name, answer, out);
    }
  }
  const Links links(examination);
  for (const Link& link : links.all) {
    const std::vector<std::string> both{examination.hosts[link.from].name,
                                        examination.hosts[link.to].name};
    const std::string pair = both[0] + " to " + both[1];
    char text[160];
    // One finding per link; a slow link usually has a high latency as well.
    if (links.slow(link)) {
      std::snprintf(text, sizeof text, ": %.0f Mbit/s where %.0f are usual in this set",
                    link.mbit_s, links.usual_mbit_s);
      out.push_back({Severity::kWarning,
                     "D_SLOW_LINK",
                     both,
                     pair + text,
                     "a ring is as fast as its slowest link",
                     "check errors and link speed: ethtool DEV",
                     {}});
    } else if (links.late(link)) {
      std::snprintf(text, sizeof text,
                    ": a round trip takes %.1f ms where %.1f are usual in this set",
                    link.rtt_us / 1000, links.usual_us / 1000);
      out.push_back({Severity::kWarning,
                     "D_LATENCY",
                     both,
                     pair + text,
                     "every small collective waits for several round trips",
                     "check for congestion or a detour: traceroute",
                     {}});
    }
  }
  return out;
}

}  // namespace hora::launcher::doctor
