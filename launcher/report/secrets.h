// SPDX-License-Identifier: Apache-2.0
// Takes out of a text what looks like a secret, before it is kept or given away.  [pure]
//
// Known are: the values of environment variables whose names say so; NAME=VALUE, NAME: VALUE and
// --NAME VALUE of such names; "Authorization" and "Bearer"; user:password@ of addresses; keys by
// the beginnings that their makers gave them; private keys in PEM.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hora::launcher {

// "HF_TOKEN", "--api-key", "db_password"
bool names_a_secret(std::string_view name);

class SecretFilter {
 public:
  SecretFilter() = default;
  explicit SecretFilter(const std::vector<std::pair<std::string, std::string>>& environment);

  std::string clean(std::string text) const;

 private:
  std::vector<std::string> values_;  // the longest first
};

// "--token=abc" becomes "--token=***", and so does a word after "--password".
std::vector<std::string> without_secrets(const std::vector<std::string>& words);

}  // namespace hora::launcher
