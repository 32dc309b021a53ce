// SPDX-License-Identifier: Apache-2.0
// Which requests may use the store.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/address.h"

namespace hora::rendezvous {

// Admits a request that carries the job's token or comes from an address of `allow`. An empty
// policy admits no request.
struct AccessPolicy {
  std::string token;        // empty: no token admits
  std::vector<Cidr> allow;  // for workers that cannot show a token

  // `authorization` is the field's whole value. The time that this takes does not reveal how much
  // of a token was right.
  bool admits(std::string_view authorization, const IpAddress& peer) const;
};

}  // namespace hora::rendezvous
