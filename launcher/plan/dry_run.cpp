// SPDX-License-Identifier: Apache-2.0
// What `--dry-run` prints: the same plan that a launch would use, without contacting any host.
// Whatever only a launch can know appears as "at launch".
#include "launcher/plan/dry_run.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/text/duration.h"
#include "launcher/text/shell_words.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using nlohmann::ordered_json;
using Names = std::vector<std::string>;

constexpr std::size_t kWidth = 100;

// Variables by what becomes of them. Only names are shown; values may be secrets.
struct VariableNames {
  Names forwarded;  // to every host
  Names kept;       // seen by ranks on this machine only
  Names dropped;
  Names by_options;
  Names by_launcher;  // per host or per rank
};

VariableNames sort_names(const DryRun& run) {
  VariableNames names;
  for (const auto& [name, value] : run.launcher_environment) {
    switch (travel_of(name)) {
      case Travel::kEverywhere:
        names.forwarded.push_back(name);
        break;
      case Travel::kThisMachine:
        names.kept.push_back(name);
        break;
      case Travel::kNowhere:
        names.dropped.push_back(name);
        break;
    }
  }
  std::vector<const std::vector<EnvironmentVariable>*> given{&run.spec.variables, &run.spec.knobs};
  for (const Program& program : run.spec.programs) given.push_back(&program.variables);
  for (const auto* list : given) {
    for (const EnvironmentVariable& variable : *list) names.by_options.push_back(variable.name);
  }
  // Placeholders make the library list exactly the variables that a launch would set.
  rendezvous::RendezvousAddress place;
  place.job_id = place.token = place.rendezvous_address = place.master_address = "at launch";
  place.controller = place.cpu_operations = "gloo";
  place.interfaces = {"at launch"};
  // The host runtime gets no token.
  if (run.spec.runtime == RuntimeKind::kHost) place.token.clear();
  if (run.spec.rendezvous_tls) place.tls_fingerprint = "at launch";
  for (const auto& variable : host_variables(place, {}))
    names.by_launcher.push_back(variable.first);
  for (const auto& variable : restart_variables(run.spec)) {
    names.by_launcher.push_back(variable.first);
  }
  const HostPlan& first = run.plan.hosts.front();
  // All ranks have the same names, so the first one stands for all.
  for (const auto& variable : rank_variables(run.plan, first, first.slots.front())) {
    names.by_launcher.push_back(variable.first);
  }
  // A name is listed once, with whoever has the last word about its value.
  const auto is_set = [&names](const std::string& name) {
    const auto holds = [&name](const Names& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    return holds(names.by_launcher) || holds(names.by_options);
  };
  // What the launcher sets overrides what would be forwarded.
  for (Names* sent : {&names.forwarded, &names.kept}) {
    sent->erase(std::remove_if(sent->begin(), sent->end(), is_set), sent->end());
  }
  for (Names* list :
       {&names.forwarded, &names.kept, &names.dropped, &names.by_options, &names.by_launcher}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  return names;
}

std::string runtime_text(const JobSpec& spec) {
  return spec.runtime == RuntimeKind::kHora ? "hora" : "host";
}

// How the launcher would reach a host. Whether a name means this machine is known only after a
// lookup, which a dry run does not make.
std::string way_to(const JobSpec& spec, const Host& host) {
  if (!spec.local_directly) return spec.transport;
  return host.name == "localhost" && host.user.empty()
             ? "local"
             : spec.transport + ", or local if it is here";
}

std::string column(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 2), ' ');
  return text;
}

std::string wrapped(const std::string& heading, const Names& names) {
  if (names.empty()) return "";
  std::string out = heading + " (" + std::to_string(names.size()) + "):\n";
  std::string line = " ";
  for (const std::string& name : names) {
    if (line.size() + 1 + name.size() > kWidth && line != " ") {
      out += line + "\n";
      line = " ";
    }
    // quote() also escapes control characters; the quotes themselves are dropped here.
    line += " " + quote(name).substr(1, quote(name).size() - 2);
  }
  return out + line + "\n";
}

// One line, or one for each program with its ranks.
std::string commands_text(const JobSpec& spec) {
  if (spec.programs.empty()) {
    return "command            " + quote_shell_words(spec.command) + "\n";
  }
  std::string out;
  int first = 0;
  for (const Program& program : spec.programs) {
    const int last = first + program.ranks - 1;
    std::string ranks = std::to_string(first);
    if (last > first) ranks += "-" + std::to_string(last);
    out += column("command of " + ranks, 19) + quote_shell_words(program.command) + "\n";
    first += program.ranks;
  }
  return out;
}

ordered_json programs_json(const JobSpec& spec) {
  ordered_json programs = ordered_json::array();
  int first = 0;
  for (const Program& program : spec.programs) {
    programs.push_back(
        {{"command", program.command}, {"first_rank", first}, {"ranks", program.ranks}});
    first += program.ranks;
  }
  return programs;
}

std::string settings_text(const DryRun& run) {
  const JobSpec& spec = run.spec;
  const auto plural = [](std::size_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::string out = plural(static_cast<std::size_t>(run.plan.world_size), "rank") + " on " +
                    plural(run.plan.hosts.size(), "host") + "\n";
  out += commands_text(spec);
  if (spec.ship_files.empty()) {
    out += "working directory  " + spec.working_directory + "\n";
  } else {
    out +=
        "working directory  a folder of the job, with " + quote_shell_words(spec.ship_files) + "\n";
  }
  out += "runtime            " + runtime_text(spec) + "\n";
  if (spec.bind != "auto") out += "binding            " + spec.bind + "\n";
  for (const auto& [name, source] : run.libraries) out += column(name, 19) + source + "\n";
  if (spec.engine) out += "engine             " + spec.engine->text + "\n";
  if (!spec.rsh_command.empty()) {
    const std::string words = quote_shell_words(spec.rsh_command);
    const bool is_whole = words.find("{command}") != std::string::npos;
    out += "reached by         " + words + (is_whole ? "\n" : " HOST ...\n");
  }
  out += "network            chosen at launch";
  if (!spec.network_interfaces.empty()) out += " from " + join(spec.network_interfaces, ",");
  out += "\nstart timeout      " + format_duration(spec.start_timeout) + "\n";
  if (spec.timeout) out += "timeout            " + format_duration(*spec.timeout) + "\n";
  if (spec.restart) {
    out += "restarts           up to " + std::to_string(spec.restart->most);
    if (spec.restart->delay.count() > 0) out += ", after " + format_duration(spec.restart->delay);
    out += "\n";
  }
  if (!spec.output_directory.empty()) out += "output also in     " + spec.output_directory + "\n";
  if (spec.chaos) out += "chaos              " + spec.chaos->text + "\n";
  return out;
}

std::string ranks_table(const DryRun& run) {
  std::size_t widest = 4;
  for (const HostPlan& host : run.plan.hosts) {
    widest = std::max(widest, format_host({host.host.name, host.host.user, {}}).size());
  }
  std::string out = "\n" + column("rank", 8) + column("host", widest + 2) + column("local", 10) +
                    column("cross", 10) + "reached by\n";
  for (const HostPlan& host : run.plan.hosts) {
    for (const Slot& slot : host.slots) {
      out += column(std::to_string(slot.rank), 8);
      out += column(format_host({host.host.name, host.host.user, {}}), widest + 2);
      out += column(std::to_string(slot.local_rank) + "/" + std::to_string(host.slots.size()), 10);
      out += column(std::to_string(slot.cross_rank) + "/" + std::to_string(slot.cross_size), 10);
      out += way_to(run.spec, host.host) + "\n";
    }
  }
  return out;
}

ordered_json ranks_json(const Plan& plan) {
  ordered_json ranks = ordered_json::array();
  for (const HostPlan& host : plan.hosts) {
    for (const Slot& slot : host.slots) {
      ranks.push_back({{"rank", slot.rank},
                       {"host", host.host.name},
                       {"local_rank", slot.local_rank},
                       {"local_size", host.slots.size()},
                       {"cross_rank", slot.cross_rank},
                       {"cross_size", slot.cross_size}});
    }
  }
  return ranks;
}

ordered_json hosts_json(const DryRun& run) {
  ordered_json hosts = ordered_json::array();
  for (const HostPlan& host : run.plan.hosts) {
    hosts.push_back({{"index", host.index},
                     {"name", host.host.name},
                     {"user", host.host.user},
                     {"slots", host.host.slots.value_or(0)},
                     {"ranks", host.slots.size()},
                     {"reached_by", way_to(run.spec, host.host)},
                     {"interface", "chosen at launch"}});
  }
  return hosts;
}

}  // namespace

std::string dry_run_text(const DryRun& run) {
  const VariableNames names = sort_names(run);
  std::string out = settings_text(run) + ranks_table(run) + "\n";
  out += wrapped("variables set for every rank", names.by_launcher);
  out += wrapped("variables set by options", names.by_options);
  out += wrapped("variables that travel as they are", names.forwarded);
  out += wrapped("variables that only ranks on this machine have", names.kept);
  out += wrapped("variables that no rank has", names.dropped);
  return out;
}

std::string dry_run_json(const DryRun& run) {
  const JobSpec& spec = run.spec;
  const VariableNames names = sort_names(run);
  ordered_json out;
  out["schema"] = 1;
  out["world_size"] = run.plan.world_size;
  out["command"] = spec.command;
  if (!spec.programs.empty()) out["programs"] = programs_json(spec);
  out["working_directory"] = spec.working_directory;
  out["ship"] = spec.ship_files;
  out["runtime"] = runtime_text(spec);
  if (spec.bind != "auto") out["bind"] = spec.bind;
  // As with the other settings that few jobs have, it is there only where it says something.
  for (const auto& [name, source] : run.libraries) out["libraries"][name] = source;
  if (spec.engine) {
    out["engine"] = {
        {"name", spec.engine->name}, {"job", spec.engine->job}, {"text", spec.engine->text}};
  }
  out["rsh"] = spec.rsh_command;
  out["network_interfaces"] = spec.network_interfaces;
  out["start_timeout_ms"] = spec.start_timeout.count();
  out["timeout_ms"] = spec.timeout ? ordered_json(spec.timeout->count()) : ordered_json(nullptr);
  if (spec.restart) out["restarts"] = spec.restart->most;
  out["output_directory"] = spec.output_directory;
  if (spec.chaos) out["chaos"] = spec.chaos->text;
  out["hosts"] = hosts_json(run);
  out["ranks"] = ranks_json(run.plan);
  out["environment"] = {{"set_for_ranks", names.by_launcher},
                        {"set_by_options", names.by_options},
                        {"forwarded", names.forwarded},
                        {"this_machine_only", names.kept},
                        {"dropped", names.dropped}};
  // Arguments may contain any bytes; invalid UTF-8 is replaced rather than thrown at.
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hora::launcher
