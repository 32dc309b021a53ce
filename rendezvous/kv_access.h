// Who may use the store.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/address.h"

namespace hora::rendezvous {

// A request is admitted if it shows the job's token, or if it comes from an address of `allow`.
// An empty policy admits nobody.
struct AccessPolicy {
  std::string token;        // empty: no token opens
  std::vector<Cidr> allow;  // for workers that cannot show a token

  // `authorization` is the field's whole value. Time does not tell how much of a token was right.
  bool admits(std::string_view authorization, const IpAddress& peer) const;
};

}  // namespace hora::rendezvous
