// SPDX-License-Identifier: Apache-2.0
// --include and --exclude: some of the hosts, or some GPUs of a host, as DeepSpeed has them. [pure]
//
//   list := term { "@" term }      term := hosts [":" gpus]
// "a@b:0,2" is all of a and GPUs 0 and 2 of b; hosts may be several ("a,b", "n[1-4]:0-3"), as in
// -H.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct HostTerm {
  std::string host;
  std::vector<int> gpus;  // empty: the whole host
};

// Errors (kUsage) say the column. `origin` is the option.
Result<std::vector<HostTerm>> parse_host_terms(std::string_view text, std::string_view origin);

// Only these, in the order of `hosts`. A host of which GPUs are named has as many slots, and
// Host::gpus says which. `otherwise` are the slots of a host without a number, if that is known.
// Errors (kUsage): a host that is not among them, a GPU beyond its slots, nothing left.
Result<std::vector<Host>> include_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise);
// All but these. GPUs can be left out of a host only if its number of slots is known.
Result<std::vector<Host>> exclude_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise);

}  // namespace hora::launcher
