// SPDX-License-Identifier: Apache-2.0
// Grid Engine (Sun, Univa, Altair, Son of): sge_pe(5) and qrsh(1). Seen with 8.1.9.
#include "launcher/engines/host_counts.h"
#include "launcher/engines/registry.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

std::vector<std::string> starter(const std::vector<std::string>& args) {
  std::vector<std::string> words{"qrsh", "-inherit"};
  words.insert(words.end(), args.begin(), args.end());
  return words;
}

// A line is "host slots queue processors"; a host comes once for each of its queues.
Result<std::vector<Host>> read_pe_hostfile(std::string_view text) {
  std::string pairs;
  for (const std::string_view line : split(text, '\n')) {
    const std::string_view host = trim(line);
    const std::size_t second = host.find_first_of(" \t");
    if (second == std::string_view::npos) {
      pairs += std::string(host) + " ";
      continue;
    }
    const std::string_view rest = trim(host.substr(second));
    pairs += std::string(host.substr(0, second)) + " " +
             std::string(rest.substr(0, rest.find_first_of(" \t"))) + " ";
  }
  return pair_hosts(pairs, "$PE_HOSTFILE");
}

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  auto text = needed_file(inputs, "PE_HOSTFILE");
  if (!text) return std::move(text).error();
  auto hosts = read_pe_hostfile(*text);
  if (!hosts) return std::move(hosts).error();
  return Allocation{inputs.variable("JOB_ID").value_or(""), std::move(*hosts), starter(args)};
}

constexpr EngineDescriptor kDescriptor{.name = "sge",
                                       .title = "Grid Engine",
                                       .from = "`$PE_HOSTFILE`, of a parallel environment",
                                       .how = "qrsh -inherit",
                                       .mark = "PE_HOSTFILE",
                                       .find = find};

}  // namespace

const EngineDescriptor* sge_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
