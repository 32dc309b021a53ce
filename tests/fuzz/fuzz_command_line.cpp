// SPDX-License-Identifier: Apache-2.0
// A command line, one word per line: any words give a command or a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/options/command_line.h"
#include "rendezvous/base/text.h"

using namespace hora;
using namespace hora::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words{"horarun"};
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (size > 0) {
    for (const std::string_view word : split(text, '\n')) {
      words.emplace_back(word.substr(0, word.find('\0')));
    }
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  ProcessInputs inputs;
  inputs.variable = [](std::string_view) { return std::nullopt; };
  inputs.read_file = [](const std::string& path) -> Result<std::string> {
    return std::string("a slots=2\n" + path);
  };
  const auto command = parse_command_line(static_cast<int>(argv.size()), argv.data(), inputs);
  if (!command) {
    if (command.error().message.empty() || command.error().code != ErrorCode::kUsage) std::abort();
    return 0;
  }
  const auto* launch = std::get_if<Launch>(&*command);
  if (launch == nullptr) return 0;
  // The program is the end of what was typed, unchanged.
  const auto& program = launch->job.command;
  if (program.empty() || program.size() >= words.size()) std::abort();
  if (!std::equal(program.rbegin(), program.rend(), words.rbegin())) std::abort();
  return 0;
}
