// SPDX-License-Identifier: Apache-2.0
// Grid Engine (Sun, Univa, Altair, Son of): sge_pe(5) and qrsh(1). Seen with 8.1.9.
#include "launcher/engines/engine.h"
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

// "11/25/2026", after the state.
bool is_date(std::string_view word) {
  return word.size() == 10 && word[2] == '/' && word[5] == '/';
}

// The state in the job's line of `qstat`: "dr" is one that runs and was deleted. Nothing: there is
// no such line. The name of a job may hold blanks, so the date marks the column.
std::optional<std::string> state_in(std::string_view listing, std::string_view job) {
  for (const std::string_view line : split(listing, '\n')) {
    std::string_view state;
    std::string_view rest = trim(line);
    for (bool first = true; !rest.empty(); first = false) {
      const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
      if (first && word != job) break;
      if (is_date(word)) return std::string(state);
      state = word;
      rest = trim(rest.substr(word.size()));
    }
  }
  return std::nullopt;
}

// Only a list that was given says that a job is not in it.
std::string verdict(std::string_view job, const EngineAnswer& answer) {
  if (answer.exit_code != 0) return "";
  const auto state = state_in(answer.text, job);
  if (!state) return "job " + std::string(job) + " is not in the list of qstat any more";
  if (state->find('d') == std::string::npos) return "";
  return "job " + std::string(job) + " is being deleted (state " + *state + ")";
}

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  auto text = needed_file(inputs, "PE_HOSTFILE");
  if (!text) return std::move(text).error();
  auto hosts = read_pe_hostfile(*text);
  if (!hosts) return std::move(hosts).error();
  Allocation found{inputs.variable("JOB_ID").value_or(""), std::move(*hosts), starter(args)};
  found.this_host = only_host(found.hosts);
  if (!found.job.empty()) found.question = {"qstat"};
  return found;
}

constexpr EngineDescriptor kDescriptor{.name = "sge",
                                       .title = "Grid Engine",
                                       .from = "`$PE_HOSTFILE`, of a parallel environment",
                                       .how = "qrsh -inherit",
                                       .mark = "PE_HOSTFILE",
                                       .find = find,
                                       // A host forgets tasks that have ended a moment later.
                                       .passing_refusal = "didn't accept task",
                                       .verdict = verdict};

}  // namespace

const EngineDescriptor* sge_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
