// SPDX-License-Identifier: Apache-2.0
// What the PMI servers of a job tell each other, through the job's rendezvous.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/http_store.h"

namespace hora::pmi {

// Blocks; each call is of a thread of its own. There is no deadline: a fence lasts until the last
// rank comes to it, and the job's end ends this process.
class Exchange {
 public:
  // From the variables of the job's ranks. An error names the one that is missing.
  static Result<Exchange> from_environment();

  // Leaves `data` under the host's number at `place`, and answers that of all `hosts`, one behind
  // the other.
  Result<std::string> gather(const std::string& place, int own_host, const std::vector<int>& hosts,
                             const std::string& data) const;
  Status publish(const std::string& key, const std::string& data) const;
  Result<std::string> wait(const std::string& key) const;

 private:
  rendezvous::HttpStore open() const;

  std::string host_;
  std::uint16_t port_ = 0;
  std::string token_;
  std::string tls_;  // the certificate's fingerprint; empty: plain HTTP
};

}  // namespace hora::pmi
