// SPDX-License-Identifier: Apache-2.0
// `horarun bundle-report`: what one needs to find out why a job failed, in one document: the record
// of the job (--report FILE.json), an examination of its hosts (doctor), the variables that steer
// the runtime. What looks like a secret is blanked everywhere.  [pure]
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/report/secrets.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct BundleParts {
  std::string version;
  std::string made_at;      // RFC 3339
  std::string record;       // JSON
  std::string examination;  // JSON; empty: none was made
  std::vector<std::pair<std::string, std::string>> environment;
};

// The hosts that the record names, with their slots. An error says why it is not a record.
Result<std::vector<Host>> hosts_of_record(const std::string& record);
Result<std::string> bundle_report(const BundleParts& parts);

}  // namespace hora::launcher
