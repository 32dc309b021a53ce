// SPDX-License-Identifier: Apache-2.0
// The command line as the tests of options type it, in a small world: "hosts" is a host file,
// "ranks" a rankfile, "text:..." a file that holds what follows; "train.py" is a file and "true" a
// program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/options/command_line.h"
#include "tests/support/catch.h"

namespace hora::launcher {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string, std::less<>>;

Result<Command> parse(const Words& words, const Variables& variables = {},
                      const char* program = "horarun");

// The message of the usage error that the words are.
std::string error_of(const Words& words, const Variables& variables = {});

template <typename T>
T parsed(const Words& words, const Variables& variables = {}) {
  auto command = parse(words, variables);
  for (const auto& word : words) UNSCOPED_INFO(word);
  if (!command) FAIL(command.error().message);
  REQUIRE(std::holds_alternative<T>(*command));
  return std::get<T>(*command);
}

inline JobSpec job_of(const Words& words, const Variables& variables = {}) {
  return parsed<Launch>(words, variables).job;
}

}  // namespace hora::launcher
