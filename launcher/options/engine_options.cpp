// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/engine_options.h"

#include <chrono>
#include <utility>

#include "launcher/engines/allocation_text.h"
#include "launcher/engines/registry.h"
#include "launcher/text/shell_words.h"
#include "launcher/text/usage_error.h"
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

// --rsh and --transport say how; mpirun has a way of its own.
bool starts_by_engine(const OptionValues& values) {
  return !values.has("--rsh") && values.text("--transport", "auto") == "auto" &&
         !values.has("--mpi");
}

std::string way(const OptionValues& values, const EngineDescriptor& engine,
                const Allocation& allocation) {
  if (values.has("--mpi")) return "mpirun";
  if (values.has("--rsh")) return "--rsh";
  if (!starts_by_engine(values)) return values.text("--transport");
  if (allocation.step) return allocation.step->name;
  return allocation.starter.empty() ? JobSpec{}.transport : std::string(engine.how);
}

// Whoever chooses among the hosts of an allocation, or names some, has those.
bool follows(const OptionValues& values) {
  return !names_hosts(values) && !values.has("--include") && !values.has("--exclude") &&
         !values.has("--nnodes");
}

// Slots that the user names where the engine was asked for none. "auto" is settled when the hosts
// have told how many GPUs they have.
Status take_slots(const OptionValues& values, Allocation& allocation) {
  if (!allocation.slots_are_free || names_hosts(values)) return Ok{};
  for (const char* name : {"--slots-per-host", "--nproc-per-node"}) {
    if (!values.has(name)) continue;
    for (Host& host : allocation.hosts) host.slots = parse_int<int>(values.text(name));
    return Ok{};
  }
  return allocation.unclear_slots.empty() ? Status(Ok{}) : usage(allocation.unclear_slots);
}

struct Found {
  const EngineDescriptor* engine = nullptr;  // nullptr: none is to be used
  Allocation allocation;
};

Result<Found> find_allocation(const OptionValues& values, const ProcessInputs& inputs) {
  const auto nowhere = [](std::string_view) { return false; };
  const EngineInputs of_engine{inputs.variable, inputs.read_file,
                               inputs.has_program ? inputs.has_program : nowhere};
  const auto engine = choose(values, of_engine);
  if (!engine) return engine.error();
  if (*engine == nullptr) return Found{};
  auto args = split_shell_words(values.text("--engine-args"));
  if (!args) return std::move(args).error().with_context("--engine-args");
  auto allocation = (*engine)->find(of_engine, *args);
  if (!allocation) {
    return std::move(allocation)
        .error()
        .with_context(std::string((*engine)->title) + " (--engine none ignores the allocation)");
  }
  if (auto taken = take_slots(values, *allocation); !taken) {
    return std::move(taken).error().with_context("the allocation of " +
                                                 std::string((*engine)->title));
  }
  return Found{*engine, std::move(*allocation)};
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
  if (starts_by_engine(values)) {
    // An engine whose command may be missing has none then.
    if (allocation.step && inputs.has_program && !inputs.has_program(allocation.step->name)) {
      return usage("the allocation of " + std::string(found->engine->title) + ": $PATH has no " +
                   allocation.step->name + "; --transport ssh reaches its hosts by ssh");
    }
    job.rsh_command = allocation.starter;
    job.passing_refusal = found->engine->passing_refusal;
    job.engine_step = allocation.step;
  }
  job.engine = JobEngine{
      std::string(found->engine->name), allocation.job,
      allocation_text(*found->engine, allocation, way(values, *found->engine, allocation)),
      allocation.question, follows(values) ? allocation.watch : std::nullopt};
  return Ok{};
}

std::string describe_allocation(const OptionValues& values, const ProcessInputs& inputs) {
  const auto found = find_allocation(values, inputs);
  if (!found) return found.error().message;
  if (found->engine == nullptr) return "";
  return allocation_text(*found->engine, found->allocation,
                         way(values, *found->engine, found->allocation));
}

}  // namespace hora::launcher
