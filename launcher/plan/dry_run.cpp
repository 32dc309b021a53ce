// SPDX-License-Identifier: Apache-2.0
// What `--dry-run` prints: the same plan that a launch would use, without contacting any host.
// Whatever only a launch can know appears as "at launch".
#include "launcher/plan/dry_run.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/plan/plan.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using nlohmann::ordered_json;
using Names = std::vector<std::string>;

constexpr std::size_t kWidth = 100;
// A table with more lines is not read; --json has every rank.
constexpr int kMostRanksListed = 64;

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
  place.controller = "gloo";
  place.cpu_operations = cpu_operations_of(run.spec);
  place.interfaces = {"at launch"};
  // The host runtime gets no token.
  if (run.spec.runtime == RuntimeKind::kHost) place.token.clear();
  if (run.spec.rendezvous_tls) place.tls_fingerprint = "at launch";
  for (const auto& variable : host_variables(place, {}))
    names.by_launcher.push_back(variable.first);
  for (const auto& variable : restart_variables(run.spec)) {
    names.by_launcher.push_back(variable.first);
  }
  for (const std::string& name : run.environment_names) names.by_launcher.push_back(name);
  const HostPlan& first = run.plan.hosts.front();
  // All ranks have the same names, so the first one stands for all.
  for (const auto& variable : rank_variables(run.plan, first, first.slots.front())) {
    names.by_launcher.push_back(variable.first);
  }
  // A name is listed once, with the source that decides its value.
  const auto is_set = [&names](const std::string& name) {
    const auto holds = [&name](const Names& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    return holds(names.by_launcher) || holds(names.by_options);
  };
  // The launcher's own variables override forwarded ones.
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
  if (host.port) return spec.transport;
  return host.name == "localhost" && host.user.empty()
             ? "local"
             : spec.transport + ", or local if it is here";
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

// "a:0,2 b:1": of hosts of which only some are used.
std::string gpus_text(const Plan& plan) {
  std::vector<std::string> out;
  for (const HostPlan& host : plan.hosts) {
    std::vector<std::string> numbers;
    for (const int gpu : host.host.gpus) numbers.push_back(std::to_string(gpu));
    if (!numbers.empty()) out.push_back(host.host.name + ":" + join(numbers, ","));
  }
  return join(out, " ");
}

std::string settings_text(const DryRun& run) {
  const JobSpec& spec = run.spec;
  std::string out = counted(static_cast<std::size_t>(run.plan.world_size), "rank") + " on " +
                    counted(run.plan.hosts.size(), "host") + "\n";
  out += commands_text(spec);
  if (spec.ship_files.empty()) {
    out += "working directory  " + spec.working_directory + "\n";
  } else {
    out +=
        "working directory  a folder of the job, with " + quote_shell_words(spec.ship_files) + "\n";
  }
  if (!run.ship_environment.empty()) {
    out += "environment        " + run.ship_environment + "\n";
  }
  out += "runtime            " + runtime_text(spec) + "\n";
  if (spec.bind != "auto") out += "binding            " + spec.bind + "\n";
  const std::string gpus = gpus_text(run.plan);
  if (!gpus.empty()) out += "GPUs               " + gpus + "\n";
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

std::string name_of(const HostPlan& host) { return format_host(host.host, std::nullopt); }

std::string table_of_ranks(const DryRun& run) {
  std::size_t widest = 4;
  // Cores come from a rankfile; without one the column is left out.
  std::size_t widest_cores = 0;
  for (const HostPlan& host : run.plan.hosts) {
    widest = std::max(widest, name_of(host).size());
    for (const Slot& slot : host.slots) widest_cores = std::max(widest_cores, slot.cores.size());
  }
  const auto cores_column = [widest_cores](const std::string& text) {
    return widest_cores == 0 ? "" : column(text, std::max<std::size_t>(widest_cores, 5) + 2);
  };
  std::string out = "\n" + column("rank", 8) + column("host", widest + 2) + column("local", 10) +
                    column("cross", 10) + cores_column("cores") + "reached by\n";
  for (const HostPlan& host : run.plan.hosts) {
    for (const Slot& slot : host.slots) {
      out += column(std::to_string(slot.rank), 8);
      out += column(name_of(host), widest + 2);
      out += column(std::to_string(slot.local_rank) + "/" + std::to_string(host.slots.size()), 10);
      out += column(std::to_string(slot.cross_rank) + "/" + std::to_string(slot.cross_size), 10);
      out += cores_column(slot.cores) + way_to(run.spec, host.host) + "\n";
    }
  }
  return out;
}

// Hosts that follow each other in the list and differ in nothing but their names and ranks.
struct AlikeHosts {
  const HostPlan* first = nullptr;
  const HostPlan* last = nullptr;
  int hosts = 0;
};

std::vector<AlikeHosts> alike_hosts(const DryRun& run) {
  std::vector<AlikeHosts> groups;
  for (const HostPlan& host : run.plan.hosts) {
    const bool like_the_last =
        !groups.empty() && groups.back().last->slots.size() == host.slots.size() &&
        way_to(run.spec, groups.back().last->host) == way_to(run.spec, host.host);
    if (!like_the_last) groups.push_back({.first = &host});
    groups.back().last = &host;
    ++groups.back().hosts;
  }
  return groups;
}

std::string table_of_hosts(const DryRun& run) {
  const std::vector<AlikeHosts> groups = alike_hosts(run);
  const auto names = [](const AlikeHosts& group) {
    if (group.hosts == 1) return name_of(*group.first);
    return name_of(*group.first) + " ... " + name_of(*group.last);
  };
  std::size_t widest = 5;
  for (const AlikeHosts& group : groups) widest = std::max(widest, names(group).size());
  std::string out = "\n" + column("ranks", 16) + column("hosts", widest + 2) + column("count", 8) +
                    column("ranks of each", 15) + "reached by\n";
  for (const AlikeHosts& group : groups) {
    out += column(std::to_string(group.first->slots.front().rank) + " ... " +
                      std::to_string(group.last->slots.back().rank),
                  16);
    out += column(names(group), widest + 2);
    out += column(std::to_string(group.hosts), 8);
    const auto& slots = group.first->slots;
    const bool in_turn = slots.size() > 1 && slots[1].rank != slots[0].rank + 1;
    out += column(std::to_string(slots.size()) + (in_turn ? " in turn" : ""), 15);
    out += way_to(run.spec, group.first->host) + "\n";
  }
  return out + "(--json lists every rank)\n";
}

ordered_json ranks_json(const DryRun& run) {
  const auto& programs = run.spec.programs;
  ordered_json ranks = ordered_json::array();
  for (const HostPlan& host : run.plan.hosts) {
    for (const Slot& slot : host.slots) {
      ranks.push_back({{"rank", slot.rank},
                       {"host", host.host.name},
                       {"local_rank", slot.local_rank},
                       {"local_size", host.slots.size()},
                       {"cross_rank", slot.cross_rank},
                       {"cross_size", slot.cross_size}});
      if (!slot.cores.empty()) ranks.back()["cores"] = slot.cores;
      if (!programs.empty()) ranks.back()["program"] = program_of_rank(programs, slot.rank);
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
    if (host.host.port) hosts.back()["port"] = *host.host.port;
    if (!host.host.gpus.empty()) hosts.back()["gpus"] = host.host.gpus;
  }
  return hosts;
}

}  // namespace

std::string dry_run_text(const DryRun& run) {
  const VariableNames names = sort_names(run);
  std::string out = settings_text(run);
  // With a rankfile, each rank is shown.
  const bool is_cut = run.plan.world_size > kMostRanksListed && run.spec.seats.empty();
  out += is_cut ? table_of_hosts(run) : table_of_ranks(run);
  out += "\n";
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
  if (!run.ship_environment.empty()) out["ship_environment"] = run.ship_environment;
  out["runtime"] = runtime_text(spec);
  if (spec.bind != "auto") out["bind"] = spec.bind;
  // As with the other settings that few jobs have, it is printed only if it is set.
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
  out["ranks"] = ranks_json(run);
  out["environment"] = {{"set_for_ranks", names.by_launcher},
                        {"set_by_options", names.by_options},
                        {"forwarded", names.forwarded},
                        {"this_machine_only", names.kept},
                        {"dropped", names.dropped}};
  // Arguments may contain any bytes; invalid UTF-8 is replaced rather than thrown at.
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hora::launcher
