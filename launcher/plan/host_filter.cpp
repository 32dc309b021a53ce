// SPDX-License-Identifier: Apache-2.0
// As in DeepSpeed, slots are GPUs here, counted from 0: what is named of a host must be among its
// slots, or the list was written for other hosts.
#include "launcher/plan/host_filter.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "launcher/text/few_names.h"
#include "launcher/text/spec_location.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Behind the last ':' of a term, unless that is part of an IPv6 address; npos: none.
std::size_t colon_of(std::string_view term) {
  const std::size_t colon = term.rfind(':');
  const std::size_t bracket = term.rfind(']');
  const bool is_address =
      colon != std::string_view::npos && bracket != std::string_view::npos && colon < bracket;
  return is_address ? std::string_view::npos : colon;
}

// "0,2-3", no number twice.
// A number twice would be two ranks on one GPU, which no list says on purpose.
std::optional<std::vector<int>> read_gpus(std::string_view text) {
  std::vector<int> gpus;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t dash = item.find('-');
    const auto first = parse_int<int>(item.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_int<int>(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxSlotsPerHost) {
      return std::nullopt;
    }
    for (int gpu = *first; gpu <= *last; ++gpu) gpus.push_back(gpu);
  }
  std::vector<int> sorted = gpus;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  return gpus;
}

// What one option does to one host at a time.
class Filter {
 public:
  Filter(std::string_view origin, const std::vector<Host>& hosts, std::optional<int> otherwise)
      : origin_(origin), hosts_(hosts), otherwise_(otherwise) {}

  // The term about each host, if there is one.
  Result<std::vector<const HostTerm*>> match(const std::vector<HostTerm>& terms) const {
    std::vector<const HostTerm*> found(hosts_.size(), nullptr);
    for (const HostTerm& term : terms) {
      const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&term](const Host& each) {
        return equals_ignoring_case(each.name, term.host);
      });
      if (host == hosts_.end()) {
        return wrong(quote(term.host) + " is not one of the job's hosts: " + names());
      }
      // Which of the two would count? DeepSpeed takes the last one, without a word.
      const HostTerm*& known = found[static_cast<std::size_t>(host - hosts_.begin())];
      if (known != nullptr) return wrong("host " + host->name + " is named twice");
      known = &term;
      HORA_TRY(check_gpus(*host, term.gpus));
    }
    return found;
  }

  std::optional<int> slots_of(const Host& host) const {
    return host.slots ? host.slots : otherwise_;
  }

  Error wrong(const std::string& message) const {
    return usage(std::string(origin_) + ": " + message);
  }

 private:
  // A host without a number of slots may have any: its driver will tell.
  Status check_gpus(const Host& host, const std::vector<int>& gpus) const {
    const auto slots = slots_of(host);
    if (gpus.empty() || !slots) return Ok{};
    const int largest = *std::max_element(gpus.begin(), gpus.end());
    if (largest < *slots) return Ok{};
    return wrong("host " + host.name + " has " + counted(*slots, "slot") +
                 ", counted from 0; there is no " + std::to_string(largest));
  }

  std::string names() const {
    std::vector<std::string> out;
    for (const Host& host : hosts_) out.push_back(host.name);
    return few_names(out);
  }

  std::string_view origin_;
  const std::vector<Host>& hosts_;
  std::optional<int> otherwise_;
};

// One rank for each GPU that is left, unless the user asks for fewer.
Host with_gpus(Host host, std::vector<int> gpus) {
  host.slots = static_cast<int>(gpus.size());
  host.gpus = std::move(gpus);
  return host;
}

}  // namespace

Result<std::vector<HostTerm>> parse_host_terms(std::string_view text, std::string_view origin) {
  std::vector<HostTerm> terms;
  std::size_t at = 0;
  for (const std::string_view term : split(text, '@')) {
    const std::size_t colon = colon_of(term);
    std::vector<int> gpus;
    if (colon != std::string_view::npos) {
      auto read = read_gpus(term.substr(colon + 1));
      if (!read) {
        return spec_error({origin, text, 0}, at + colon + 1,
                          "expected GPUs, each once, such as 0,2 or 0-3; '@' is before the next "
                          "host");
      }
      gpus = std::move(*read);
    }
    // Names are those of -H: with users, brackets, ranges and commas.
    auto hosts = parse_host_list(term.substr(0, colon), origin);
    if (!hosts) return std::move(hosts).error();
    for (Host& host : *hosts) {
      // "a:0,b:2"
      if (host.slots) {
        return spec_error({origin, text, 0}, at, "expected '@' between two hosts with GPUs");
      }
      terms.push_back({std::move(host.name), gpus});
    }
    at += term.size() + 1;
  }
  return terms;
}

Result<std::vector<Host>> include_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise) {
  const Filter filter("--include", hosts, otherwise);
  const auto found = filter.match(terms);
  if (!found) return found.error();
  // The order of the hosts, not of the list: rank 0 stays where it would be without the option.
  std::vector<Host> out;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostTerm* const term = (*found)[i];
    if (term == nullptr) continue;
    out.push_back(term->gpus.empty() ? hosts[i] : with_gpus(hosts[i], term->gpus));
  }
  return out;
}

Result<std::vector<Host>> exclude_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise) {
  const Filter filter("--exclude", hosts, otherwise);
  const auto found = filter.match(terms);
  if (!found) return found.error();
  std::vector<Host> out;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostTerm* const term = (*found)[i];
    if (term != nullptr && term->gpus.empty()) continue;  // the whole host
    if (term == nullptr) {
      out.push_back(hosts[i]);
      continue;
    }
    const auto slots = filter.slots_of(hosts[i]);
    if (!slots) {
      return filter.wrong("the slots of host " + hosts[i].name +
                          " are not known; give them, such as -H " + hosts[i].name + ":8");
    }
    // All GPUs are named, not the first ones counted: those left out may be in the middle.
    std::vector<int> left;
    for (int gpu = 0; gpu < *slots; ++gpu) {
      if (std::find(term->gpus.begin(), term->gpus.end(), gpu) == term->gpus.end()) {
        left.push_back(gpu);
      }
    }
    if (!left.empty()) out.push_back(with_gpus(hosts[i], std::move(left)));
  }
  // --include cannot come here: each of its terms names a host.
  if (out.empty()) return filter.wrong("no host is left");
  return out;
}

}  // namespace hora::launcher
