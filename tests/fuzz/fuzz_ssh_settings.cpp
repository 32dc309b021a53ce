// SPDX-License-Identifier: Apache-2.0
// Any text as the output of `ssh -G`: no crash, and a target that names the host.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "launcher/transports/ssh_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hora::launcher;
  const SshSettings settings =
      parse_ssh_settings(std::string(reinterpret_cast<const char*>(data), size));
  SshMachine machine;
  machine.home = "/home/me";
  machine.kind_of = [](const std::string& path) {
    return path.size() % 2 == 0 ? SshMachine::FileKind::kFile : SshMachine::FileKind::kNone;
  };
  machine.listens = [](const std::string& path) { return path.size() % 2 == 0; };
  machine.variable = [](const std::string& name) -> std::optional<std::string> {
    if (name.size() % 2 == 0) return name;
    return std::nullopt;
  };
  machine.may_have_ticket = [] { return true; };
  const SshTarget target = resolve_ssh_target({"gpu1", "", {}}, {}, settings, {}, machine);
  if (target.name != "gpu1") std::abort();
  return 0;
}
