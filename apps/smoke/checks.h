// SPDX-License-Identifier: Apache-2.0
// Every collective with every dtype and awkward sizes, against answers computed here.
#pragma once

#include <string>
#include <vector>

namespace hora::smoke {

struct CheckResult {
  std::string operation;
  int dtypes = 0;
  int cases = 0;
  int failures = 0;           // on this rank
  std::string first_failure;  // empty: none
};

// Collective: every rank calls it. One result per operation, and one for "mismatch" (that ranks
// which disagree get an error) where there is more than one rank.
std::vector<CheckResult> check_all();

}  // namespace hora::smoke
