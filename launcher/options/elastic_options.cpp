// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/elastic_options.h"

#include <utility>

#include "launcher/plan/rank_count.h"
#include "launcher/text/duration.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// As in horovodrun, 0 or no value means the default.
Status read_timeout(const OptionValues& values, const ProcessInputs& inputs, ElasticSpec& spec) {
  if (const auto given = parse_duration(values.text("--elastic-timeout"))) {
    spec.timeout = *given;
    return Ok{};
  }
  const auto text = inputs.variable("HOROVOD_ELASTIC_TIMEOUT");
  if (!text || text->empty()) return Ok{};
  const auto value = parse_duration(*text);
  if (!value) {
    return usage("$HOROVOD_ELASTIC_TIMEOUT: expected " + std::string(kDurationGrammar) +
                 ", found " + quote(*text));
  }
  if (value->count() > 0) spec.timeout = *value;
  return Ok{};
}

// The job starts with -np ranks, so the limits must include that number.
Status check_numbers(const JobSpec& job) {
  const auto number = [](int value) { return std::to_string(value); };
  if (job.elastic->min_np > job.num_proc) {
    return usage("--min-np " + number(job.elastic->min_np) + " is more than -np " +
                 number(job.num_proc) + ", the number of ranks at the start");
  }
  if (job.elastic->max_np && *job.elastic->max_np < job.num_proc) {
    return usage("--max-np " + number(*job.elastic->max_np) + " is less than -np " +
                 number(job.num_proc) + ", the number of ranks at the start");
  }
  return Ok{};
}

}  // namespace

// Either option makes a job elastic, as in horovodrun.
bool is_elastic(const OptionValues& values) {
  return values.has("--min-np") || values.has("--host-discovery-script");
}

bool is_for_elastic_jobs(const OptionRow& row) {
  for (const std::string_view name :
       {"--max-np", "--elastic-timeout", "--reset-limit", "--blacklist-cooldown-range"}) {
    if (long_name(row) == name) return true;
  }
  return false;
}

Status read_elastic_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  if (!is_elastic(values)) return Ok{};
  ElasticSpec spec;
  const auto least = values.count("--min-np");
  // --min-np alone also gives the number to start with.
  if (job.num_proc == 0 && least) job.num_proc = *least;
  if (job.num_proc == 0) {
    return usage("-np is missing: with how many ranks an elastic job starts");
  }
  const bool is_here = job.hosts.empty() && !values.has("--host-discovery-script");
  if (is_here) HORA_TRY(check_ranks_of_host("localhost", job.num_proc));
  spec.min_np = least.value_or(job.num_proc);
  spec.max_np = values.count("--max-np");
  spec.discovery_script = values.text("--host-discovery-script");
  if (job.engine && job.engine->watch) {
    spec.follows_engine = true;
    job.engine->text += "; hosts come and go as " + job.engine->watch->name + " says";
  }
  spec.reset_limit = values.count("--reset-limit");
  // The option's check has ensured two numbers in order.
  const std::string cooldown = values.text("--blacklist-cooldown-range");
  const auto range = split(cooldown, ' ');
  if (range.size() == 2) {
    spec.cooldown_seconds = {parse_int<int>(range[0]).value_or(1),
                             parse_int<int>(range[1]).value_or(1)};
  }
  HORA_TRY(read_timeout(values, inputs, spec));
  // The number of GPUs is known only when a host is connected, while the plan for an epoch needs it
  // before.
  if (job.slots_per_host_auto) {
    return usage("--slots-per-host auto cannot be used with elastic jobs; expected a number");
  }
  job.elastic = std::move(spec);
  return check_numbers(job);
}

}  // namespace hora::launcher
