// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/options/parsing.h"

#include <cerrno>
#include <optional>

namespace hora::launcher {

Result<Command> parse(const Words& words, const Variables& variables, const char* program) {
  std::vector<const char*> argv{program};
  for (const std::string& word : words) argv.push_back(word.c_str());
  ProcessInputs inputs;
  inputs.variable = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  inputs.variable_names = [&] {
    std::vector<std::string> names;
    for (const auto& [name, value] : variables) names.push_back(name);
    return names;
  };
  inputs.read_file = [](const std::string& path) -> Result<std::string> {
    if (path == "hosts") return std::string("a slots=2\nb slots=2\n");
    if (path == "nodes") return std::string("a\nb\na\n");
    if (path == "variables")
      return std::string("\xEF\xBB\xBF# of the job\nA=1\n\nHERE\r\nEMPTY=\nB= 'x' \n");
    if (path == "bad variables") return std::string("A=1\nexport B=2\n");
    if (path == "ranks") return std::string("rank 0=b slot=0\nrank 1=a slot=1\n");
    if (path.starts_with("text:")) return path.substr(5);
    if (path == "bad") return std::string("a slots=2\nb slots=x\n");
    if (path == "/etc/mpi/hostfile") return std::string("w-0:2\nw-1:2\n");
    if (path == "/etc/mpi/discover_hosts.sh") return std::string("#!/bin/sh\n");
    return errno_error(ENOENT, "opening " + path);
  };
  inputs.has_program = [](std::string_view name) {
    return name == "true" || name == "mpirun" || name == "srun";
  };
  inputs.has_file = [](const std::string& path) { return path == "train.py"; };
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), inputs);
}

std::string error_of(const Words& words, const Variables& variables) {
  auto command = parse(words, variables);
  for (const auto& word : words) UNSCOPED_INFO(word);
  REQUIRE_FALSE(command);
  CHECK(command.error().code == ErrorCode::kUsage);
  return command.error().message;
}

}  // namespace hora::launcher
