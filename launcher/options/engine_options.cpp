// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/engine_options.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "launcher/engines/allocation_text.h"
#include "launcher/engines/registry.h"
#include "launcher/options/elastic_options.h"
#include "launcher/options/rankfile_options.h"
#include "launcher/plan/rank_count.h"
#include "launcher/text/shell_words.h"
#include "launcher/text/usage_error.h"
#include "launcher/transports/rsh_argv.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::chrono::milliseconds kHostsCome{600'000};

bool names_hosts(const OptionValues& values) {
  return values.has("-H") || values.has("--hostfile") || values.has("--host-discovery-script") ||
         values.has("--listen") || values.verb() == kVerbKubernetes;
}

// nullptr: none is to be used. Whoever names hosts means those, wherever horarun was started; only
// --engine says that the engine is to reach them.
Result<const EngineDescriptor*> choose(const OptionValues& values, const EngineInputs& inputs) {
  const bool by_jsrun = values.has("--jsrun");
  const std::string name = by_jsrun ? "jsrun" : values.text("--engine", "auto");
  if (name == "none") return nullptr;
  if (name == "auto") return names_hosts(values) ? nullptr : engine_here(inputs);
  const EngineDescriptor* const engine = find_engine(name);
  if (!is_here(*engine, inputs)) {
    const std::string asked_for = by_jsrun ? "--jsrun" : "--engine " + name;
    const bool marked = !inputs.variable(engine->mark).value_or("").empty();
    return usage(asked_for + ": not inside an allocation of " + std::string(engine->title) + ": " +
                 (marked ? "$PATH has no " + std::string(engine->how)
                         : "$" + std::string(engine->mark) + " is not set"));
  }
  return engine;
}

struct Found {
  const EngineDescriptor* engine = nullptr;  // nullptr: none is to be used
  Allocation allocation;
  bool is_local = false;  // its only host is this machine, and nothing has to be started there
};

// --rsh and --transport say how; mpirun has a way of its own.
bool starts_by_engine(const OptionValues& values) {
  return !values.has("--rsh") && values.text("--transport", "auto") == "auto" &&
         !values.has("--mpi");
}

// The program that the engine's command is; empty: it has no command.
std::string program_of(const Allocation& allocation) {
  if (allocation.step) return allocation.step->name;
  return allocation.starter.empty() ? "" : rsh_program(allocation.starter);
}

std::string text_of(const OptionValues& values, const Found& found) {
  const Allocation& allocation = found.allocation;
  std::string way = "ssh";
  if (values.has("--mpi")) {
    way = "mpirun";
  } else if (values.has("--rsh")) {
    way = "--rsh";
  } else if (!starts_by_engine(values)) {
    way = values.text("--transport");
  } else if (found.is_local) {
    way.clear();
  } else if (allocation.step) {
    way = allocation.step->name;
  } else if (!allocation.starter.empty()) {
    way = found.engine->how;
  }
  return allocation_text(*found.engine, allocation, way);
}

// Whoever chooses among the hosts of an allocation, or names some, has those.
bool follows(const OptionValues& values) {
  return !names_hosts(values) && !values.has("--include") && !values.has("--exclude") &&
         !values.has("--nnodes");
}

// More ranks than the slots of the allocation. Where each host has one, they say no more than that
// something is to be started there: torchrun's job scripts ask for one task on each node, and PBS
// lists a node once unless it is asked for mpiprocs.
Status make_room(const OptionValues& values, const EngineDescriptor& engine,
                 Allocation& allocation) {
  const int wanted = values.count("-np").value_or(0);
  auto& hosts = allocation.hosts;
  const auto named = parse_int<std::size_t>(values.text("--nnodes")).value_or(hosts.size());
  const std::size_t used = std::clamp<std::size_t>(named, 1, hosts.size());
  const std::vector<Host> first(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(used));
  const std::int64_t slots = count_slots(first);
  if (wanted <= slots || is_elastic(values) || has_rankfile(values) || values.has("--include") ||
      values.has("--exclude")) {
    return Ok{};
  }
  const auto each = static_cast<int>((static_cast<std::size_t>(wanted) + used - 1) / used);
  const bool one_each =
      std::all_of(first.begin(), first.end(), [](const Host& host) { return host.slots == 1; });
  if (!allocation.slots_are_free && !one_each) {
    return usage("-np " + std::to_string(wanted) + " asks for " + counted(wanted, "rank") +
                 ", but the allocation of " + std::string(engine.title) + " has " +
                 counted(slots, "slot") + " on " + counted(used, "host") +
                 ". Give each host more slots (--slots-per-host " + std::to_string(each) +
                 "), or ask for fewer ranks.");
  }
  for (std::size_t i = 0; i < used; ++i)
    hosts[i].slots = std::max(hosts[i].slots.value_or(0), each);
  return Ok{};
}

// What the user names wins over what the engine was asked for. "auto" is settled when the hosts
// have told how many GPUs they have, unless the engine knows.
Status take_slots(const OptionValues& values, const EngineDescriptor& engine,
                  Allocation& allocation) {
  if (names_hosts(values)) return Ok{};
  for (const char* name : {"--slots-per-host", "--nproc-per-node"}) {
    if (!values.has(name)) continue;
    const auto number = parse_int<int>(values.text(name));
    for (std::size_t i = 0; i < allocation.hosts.size(); ++i) {
      allocation.hosts[i].slots = number || allocation.gpus.empty() ? number : allocation.gpus[i];
    }
    return Ok{};
  }
  if (!allocation.unclear_slots.empty() && !values.has("-np")) {
    return usage("the allocation of " + std::string(engine.title) + ": " +
                 allocation.unclear_slots);
  }
  return make_room(values, engine, allocation);
}

// A step contains its processes already. Else the engine's command would, if this machine has it: a
// container inside of an allocation often lacks it.
bool runs_here(const OptionValues& values, const ProcessInputs& inputs,
               const Allocation& allocation) {
  const auto& hosts = allocation.hosts;
  if (hosts.size() != 1 || !starts_by_engine(values)) return false;
  const bool is_this = hosts.front().name == allocation.this_host ||
                       (inputs.is_this_machine && inputs.is_this_machine(hosts.front().name));
  const std::string program = program_of(allocation);
  const bool has_program = !program.empty() && (!inputs.has_program || inputs.has_program(program));
  return is_this && !values.has("--engine-args") && (allocation.is_step || !has_program);
}

Result<Found> find_allocation(const OptionValues& values, const ProcessInputs& inputs) {
  const auto nowhere = [](std::string_view) { return false; };
  const auto silence = [](const std::vector<std::string>&) { return std::optional<std::string>(); };
  const EngineInputs of_engine{inputs.variable, inputs.read_file,
                               inputs.has_program ? inputs.has_program : nowhere,
                               inputs.answer ? inputs.answer : silence};
  const auto engine = choose(values, of_engine);
  if (!engine) return engine.error();
  if (*engine == nullptr) return Found{};
  auto args = split_shell_words(values.joined("--engine-args", " "));
  if (!args) return std::move(args).error().with_context("--engine-args");
  auto allocation = (*engine)->find(of_engine, *args);
  if (!allocation) {
    return std::move(allocation)
        .error()
        .with_context(std::string((*engine)->title) + " (--engine none ignores the allocation)");
  }
  HORA_TRY(take_slots(values, **engine, *allocation));
  Found found{*engine, std::move(*allocation)};
  found.is_local = runs_here(values, inputs, found.allocation);
  return found;
}

}  // namespace

Status read_engine_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  auto found = find_allocation(values, inputs);
  if (!found) return std::move(found).error();
  if (found->engine == nullptr) return Ok{};
  Allocation& allocation = found->allocation;
  if (names_hosts(values)) {
    allocation.hosts = job.hosts;
  } else {
    job.hosts = allocation.hosts;
  }
  // As long as machines that dial (--listen) and pods (horarun k8s) have: images are pulled.
  if (found->engine->hosts_come_late) {
    job.hosts_come_late = true;
    job.start_timeout = kHostsCome;
  }
  if (found->is_local) {
    // A container may have a name of its own.
    if (!inputs.is_this_machine || !inputs.is_this_machine(job.hosts.front().name)) {
      job.hosts.front().name = "localhost";
    }
  } else if (starts_by_engine(values)) {
    const std::string program = program_of(allocation);
    if (!program.empty() && inputs.has_program && !inputs.has_program(program)) {
      return usage("the allocation of " + std::string(found->engine->title) + ": $PATH has no " +
                   program + "; --transport ssh reaches its hosts by ssh");
    }
    job.rsh_command = allocation.starter;
    job.passing_refusal = found->engine->passing_refusal;
    job.engine_step = allocation.step;
  }
  job.engine = JobEngine{std::string(found->engine->name), allocation.job, text_of(values, *found),
                         allocation.question, follows(values) ? allocation.watch : std::nullopt};
  return Ok{};
}

std::string describe_allocation(const OptionValues& values, const ProcessInputs& inputs) {
  const auto found = find_allocation(values, inputs);
  if (!found) return found.error().message;
  if (found->engine == nullptr) return "";
  return text_of(values, *found);
}

}  // namespace hora::launcher
