// SPDX-License-Identifier: Apache-2.0
// What the command line may ask of the world; main passes getenv and file readers.  [pure]
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct ProcessInputs {
  std::function<std::optional<std::string>(std::string_view name)> variable;
  // A file that the user named.
  std::function<Result<std::string>(const std::string& path)> read_file;
  // A file that nobody named: kNotFound when there is none, an error also when it belongs to
  // neither the user nor root. Unset: none is looked for.
  std::function<Result<std::string>(const std::string& path)> read_own_file;
  // Whether $PATH has such a program. Unset: it has none.
  std::function<bool(std::string_view name)> has_program;
  // Whether there is a file of that name. Unset: there is none.
  std::function<bool(const std::string& path)> has_file = {};
  // The names of all variables. Unset: none are known.
  std::function<std::vector<std::string>()> variable_names = {};
  // Whether a host of that name is this machine. Unset: none is.
  std::function<bool(const std::string& host)> is_this_machine = {};
  // What a program prints that answers at once. Nothing: it fails. Unset: none can be asked.
  std::function<std::optional<std::string>(const std::vector<std::string>& argv)> answer = {};
};

}  // namespace hora::launcher
