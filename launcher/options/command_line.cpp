// SPDX-License-Identifier: Apache-2.0
// Each verb has a parser of its own. The order inside is the same for all: spelling, help, the
// layers of configuration, values, and then the verb's own rules.
#include "launcher/options/command_line.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "launcher/options/completion.h"
#include "launcher/options/config_file.h"
#include "launcher/options/engine_options.h"
#include "launcher/options/host_options.h"
#include "launcher/options/job_options.h"
#include "launcher/options/option_check.h"
#include "launcher/options/other_launchers.h"
#include "launcher/options/program_sections.h"
#include "launcher/options/settings.h"
#include "launcher/options/usage_text.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using Arguments = std::vector<std::string>;

// Answered by a text and exit code 0, a script would take its job for done. Other launchers have -h
// for hosts and -v for more words.
Status check_stands_alone(const std::string& typed, std::string_view prints,
                          const Arguments& others, bool takes_hosts) {
  if (others.empty()) return Ok{};
  std::string hint;
  if (typed == "-h" && takes_hosts) hint = "; hosts are given with -H";
  if (typed == "-v") hint = "; --verbose explains each step";
  return usage(typed + " prints the " + std::string(prints) + " and runs nothing, found " +
               quote(others.front()) + hint);
}

bool is_help(std::string_view word) { return word == "-h" || word == "--help"; }

// For the verbs that read their words themselves. Nothing: they do not ask for help.
Result<std::optional<ShowText>> asks_for_help(const Arguments& words, std::string text,
                                              bool takes_hosts = false) {
  const auto asked = std::find_if(words.begin(), words.end(), is_help);
  if (asked == words.end()) return std::optional<ShowText>();
  Arguments others(words.begin(), asked);
  others.insert(others.end(), asked + 1, words.end());
  HORA_TRY(check_stands_alone(*asked, "help", others, takes_hosts));
  return std::optional(ShowText{std::move(text)});
}

// Help and version work whatever the configuration files say, even if they are broken.
Result<std::optional<ShowText>> asks_for_help(const Spelled& spelled, Verb verb) {
  for (const SpelledOption& option : spelled.options) {
    const bool is_version = long_name(*option.row) == "--version";
    if (!is_version && shown_name(*option.row) != "-h") continue;
    HORA_TRY(check_stands_alone(option.typed, is_version ? "version" : "help", spelled.command,
                                find_option("-H", verb) != nullptr));
    const bool all = option.value == std::optional<std::string>("all");
    return std::optional(
        ShowText{is_version ? std::string(HORA_VERSION) + "\n" : help_text(verb, all)});
  }
  return std::optional<ShowText>();
}

Status expect_no_arguments(const Spelled& spelled, Verb verb) {
  if (spelled.command.empty()) return Ok{};
  const bool takes_hosts = find_option("-H", verb) != nullptr;
  return usage("unexpected argument " + quote(spelled.command.front()) +
               (takes_hosts ? "; name hosts with -H a,b" : ""));
}

Result<Command> parse_cache(Arguments arguments, const ProcessInputs& inputs) {
  ManageCache cache;
  // `cache` alone may still ask for --help, so the missing action is reported later.
  const bool has_action = !arguments.empty() && (arguments[0] == "ls" || arguments[0] == "clean");
  if (has_action) {
    if (arguments[0] == "clean") cache.action = ManageCache::Action::kClean;
    arguments.erase(arguments.begin());
  }
  auto spelled = read_spelling(arguments, kVerbCache);
  if (!spelled) return std::move(spelled).error();
  auto help = asks_for_help(*spelled, kVerbCache);
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  if (!has_action) {
    const auto& words = spelled->command;
    return usage(
        "expected: horarun cache ls|clean [options]" +
        (words.empty() ? "" : ", found " + quote(words[0]) + did_you_mean_action(words[0])));
  }
  HORA_TRY(expect_no_arguments(*spelled, kVerbCache));
  auto settled = settle_options(*spelled, kVerbCache, inputs);
  if (!settled) return std::move(settled).error();
  auto values = check_options(settled->spelled, kVerbCache);
  if (!values) return std::move(values).error();
  HORA_TRY(read_reach_options(*values, inputs, cache.job));
  for (const char* option : {"--older-than", "--max-size", "--dry-run"}) {
    if (cache.action == ManageCache::Action::kList && values->has(option)) {
      return usage(std::string(option) + " is for horarun cache clean; ls removes nothing");
    }
  }
  cache.dry_run = values->has("--dry-run");
  cache.limits = read_cache_limits(*values, "--older-than", "--max-size", {});
  return Command(std::move(cache));
}

// Connecting may take this long, so that doctor examines ten hosts in ten seconds at most, the
// slowest connection included.
constexpr std::chrono::milliseconds kDoctorConnects{5'000};

Result<Command> parse_doctor(const Arguments& arguments, const ProcessInputs& inputs) {
  auto spelled = read_spelling(arguments, kVerbDoctor);
  if (!spelled) return std::move(spelled).error();
  auto help = asks_for_help(*spelled, kVerbDoctor);
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  HORA_TRY(expect_no_arguments(*spelled, kVerbDoctor));
  auto settled = settle_options(*spelled, kVerbDoctor, inputs);
  if (!settled) return std::move(settled).error();
  auto values = check_options(settled->spelled, kVerbDoctor);
  if (!values) return std::move(values).error();
  RunDoctor doctor;
  HORA_TRY(read_reach_options(*values, inputs, doctor.job));
  // A job's start timeout includes shipping; doctor ships little, so it uses its own default.
  if (!values->has("--start-timeout")) doctor.job.start_timeout = kDoctorConnects;
  // doctor looks for what is missing now.
  doctor.job.hosts_come_late = false;
  doctor.deep = values->has("--deep");
  HORA_TRY(read_reports(*values, doctor.job));
  return Command(std::move(doctor));
}

// Reads the lists of all --allow options; one address is a network of one.
Result<std::vector<std::string>> read_networks(const OptionValues& values) {
  std::vector<std::string> out;
  for (const std::string& list : values.all("--allow")) {
    for (const std::string_view item : split(list, ',')) {
      if (!parse_cidr(trim(item))) {
        return usage("--allow: " + quote(item) +
                     " is not an address or a network; expected one such as 10.0.0.0/8");
      }
      out.emplace_back(trim(item));
    }
  }
  return out;
}

Result<Command> parse_rendezvous(const Arguments& arguments) {
  auto spelled = read_spelling(arguments, kVerbRendezvous);
  if (!spelled) return std::move(spelled).error();
  auto help = asks_for_help(*spelled, kVerbRendezvous);
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  HORA_TRY(expect_no_arguments(*spelled, kVerbRendezvous));
  auto values = check_options(*spelled, kVerbRendezvous);
  if (!values) return std::move(values).error();

  RunRendezvous server;
  const std::string address = values->text("--address", server.address);
  // "localhost" is the default address under another name.
  if (address != "localhost") server.address = address;
  if (!parse_ip_address(server.address)) {
    return usage("--address: " + quote(server.address) +
                 " is not a numeric address; expected one such as 127.0.0.1, 0.0.0.0 or localhost");
  }
  server.port = static_cast<std::uint16_t>(values->count("--port").value_or(0));
  server.end_with = values->count("--end-with");
  server.token_file = values->text("--token-file");
  server.verbose = values->has("--verbose");
  auto networks = read_networks(*values);
  if (!networks) return std::move(networks).error();
  server.allow = std::move(*networks);
  return Command(std::move(server));
}

Result<Command> parse_completion(const Arguments& arguments, const ProcessInputs& inputs) {
  if (!arguments.empty() && arguments[0] == "--") {
    return Command(ShowText{complete_words({arguments.begin() + 1, arguments.end()}, inputs)});
  }
  auto help = asks_for_help(
      arguments,
      "usage: horarun completion bash|zsh|fish\nPrints a completion script for horarun's options, "
      "their values, host names, and\nwhat follows a program.\n"
      "The script asks horarun: horarun completion -- WORD... prints what may\ncomplete the last "
      "WORD.\n");
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  if (arguments.size() != 1) return usage("expected: horarun completion bash|zsh|fish");
  auto script = completion_script(arguments[0]);
  if (!script) return std::move(script).error();
  return Command(ShowText{std::move(*script)});
}

Result<Command> parse_bundle_report(const Arguments& arguments, const ProcessInputs& inputs) {
  constexpr std::string_view kExpected =
      "expected: horarun bundle-report RECORD.json -o OUT.json [options of doctor]";
  auto help = asks_for_help(
      arguments,
      "usage: horarun bundle-report RECORD.json -o OUT.json [options of doctor]\n"
      "Writes everything known about a job to one file: its record (--report\nRECORD.json), what "
      "doctor finds on its hosts now, and the variables that\naffect it. Secrets are removed.\n",
      true);
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  if (arguments.size() < 3 || arguments[0].empty() || arguments[0][0] == '-' ||
      arguments[1] != "-o" || arguments[2].empty()) {
    return usage(std::string(kExpected));
  }
  // The words after the file are doctor's options, so doctor's parser checks them.
  auto doctor = parse_doctor({arguments.begin() + 3, arguments.end()}, inputs);
  if (!doctor) return std::move(doctor).error();
  auto* run = std::get_if<RunDoctor>(&*doctor);
  if (run == nullptr) return doctor;  // --help=all
  if (!run->job.report_files.empty()) return usage("--report: " + std::string(kExpected));
  return Command(BundleReport{arguments[0], arguments[2], std::move(*run)});
}

Result<Command> parse_timeline(const Arguments& arguments) {
  constexpr std::string_view kExpected = "expected: horarun timeline merge FILE... -o OUT";
  const bool is_merge = !arguments.empty() && arguments[0] == "merge";
  auto help = asks_for_help(
      {arguments.begin() + (is_merge ? 1 : 0), arguments.end()},
      "usage: horarun timeline merge FILE... -o OUT\nPuts the timelines of several ranks "
      "(--timeline-filename 'trace.{rank}.json')\ninto one, on one clock.\n-o -: standard output; "
      "the summary goes to standard error then.\n");
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  if (!is_merge) return usage(std::string(kExpected));
  MergeTimelines merge;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "-o" && i + 1 == arguments.size()) return usage("-o needs a value: -o OUT");
    if (word == "-o" && merge.output.empty()) {
      merge.output = arguments[++i];
    } else if (!word.empty() && word[0] == '-') {
      return usage("unexpected " + quote(word) + "; " + std::string(kExpected));
    } else {
      merge.files.push_back(word);
    }
  }
  if (merge.files.empty() || merge.output.empty()) return usage(std::string(kExpected));
  return Command(std::move(merge));
}

// Options may also follow the job: no program follows it, to which they could belong.
Result<Command> parse_jobs(AskJobs::Action action, Arguments arguments) {
  if (arguments.size() > 1 && parse_int<int>(arguments[0]) && arguments[1].starts_with('-')) {
    std::rotate(arguments.begin(), arguments.begin() + 1, arguments.end());
  }
  auto spelled = read_spelling(arguments, kVerbJobs);
  if (!spelled) return std::move(spelled).error();
  auto help = asks_for_help(*spelled, kVerbJobs);
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  AskJobs ask{action};
  const bool is_top = action == AskJobs::Action::kTop;
  if (action == AskJobs::Action::kList) {
    HORA_TRY(expect_no_arguments(*spelled, kVerbJobs));
  } else if (const auto& words = spelled->command; !is_top || !words.empty()) {
    ask.job = words.size() == 1 ? parse_int<int>(words[0]).value_or(0) : 0;
    if (ask.job <= 0) {
      const std::string verb = is_top                               ? "top [JOB]"
                               : action == AskJobs::Action::kAttach ? "attach JOB"
                                                                    : "cancel JOB";
      return usage("expected: horarun " + verb + ", a number that horarun jobs shows" +
                   (words.empty() ? "" : ", found " + quote(join(words, " "))));
    }
  }
  auto values = check_options(*spelled, kVerbJobs);
  if (!values) return std::move(values).error();
  ask.json = values->has("--json");
  ask.once = values->has("--once");
  ask.prometheus = values->has("--prometheus");
  if (ask.once && !is_top) return usage("--once is an option of horarun top alone");
  if (ask.prometheus && !is_top) return usage("--prometheus is an option of horarun top alone");
  if (ask.prometheus && ask.json) return usage("--prometheus and --json exclude each other");
  return Command(ask);
}

// An unknown code is reported by the command itself, which can suggest similar ones.
Result<Command> parse_explain(const Arguments& arguments) {
  auto help = asks_for_help(
      arguments,
      "usage: horarun explain [code]\n"
      "Explains a failure (E_SSH_AUTH), a finding of horarun doctor (D_SHM), an exit\n"
      "code (137), a signal (SIGKILL) or a fault of an NVIDIA GPU (xid79), and what to\n"
      "do about it. Without a code: lists exit codes and failures.\n"
      "horarun explain events: prints the JSON schema of the events of --json.\n");
  if (!help) return std::move(help).error();
  if (*help) return Command(std::move(**help));
  if (arguments.size() > 1) return usage("expected: horarun explain [code]");
  return Command(Explain{arguments.empty() ? "" : arguments[0]});
}

// Detects an argument that reads as hosts with slots: the second part of "-H a:4, b:4".
bool looks_like_hosts(const std::string& word) {
  // A path is a program.
  if (word.find('/') != std::string::npos) return false;
  const auto hosts = parse_host_list(word, "");
  return hosts && std::all_of(hosts->begin(), hosts->end(),
                              [](const Host& host) { return host.slots.has_value(); });
}

// Without this check, the job would fail with "b:4: not found" on every host.
Status check_forgotten_comma(const OptionValues& values, const Spelled& spelled) {
  if (!values.has("-H") || spelled.after_dashes || spelled.command.empty()) return Ok{};
  const std::string& word = spelled.command.front();
  if (!looks_like_hosts(word)) return Ok{};
  std::string hosts = values.joined("-H", ",");
  while (!hosts.empty() && (hosts.back() == ',' || hosts.back() == ' ')) hosts.pop_back();
  return usage("'" + word + "' looks like a host, but the program is expected here; write " +
               "-H " + hosts + "," + word +
               " without blanks, or put -- before a program of that name");
}

// Two places for programs would leave open whose ranks come first.
Status check_program_files(const OptionValues& values, const Spelled& spelled) {
  if (values.has("--multi-prog")) {
    if (values.has("--module")) return usage("--module is for a program, --multi-prog for a file");
    if (spelled.command.size() == 1 && !spelled.command.front().empty()) return Ok{};
    return usage("--multi-prog: expected one file in place of the program" +
                 (spelled.command.size() < 2
                      ? std::string()
                      : ", found " + quote(spelled.command[1]) + " after it"));
  }
  if (!values.has("--programs")) return Ok{};
  const std::string file = "--programs " + values.text("--programs");
  if (!spelled.command.empty()) {
    return usage(file + " has the programs of the job, found " + quote(spelled.command.front()) +
                 " behind it");
  }
  if (values.has("--module")) return usage("--module is for a line of " + file);
  return Ok{};
}

Status check_command(const OptionValues& values, const Spelled& spelled) {
  HORA_TRY(check_forgotten_comma(values, spelled));
  const bool is_smoke = values.has("--smoke");
  if (is_smoke && !spelled.command.empty()) {
    return usage("--smoke brings its own program, found " + quote(spelled.command.front()));
  }
  if (is_smoke && values.has("--module")) {
    return usage("--smoke brings its own program; --module is for yours");
  }
  if (is_smoke) return Ok{};
  HORA_TRY(check_program_files(values, spelled));
  if (values.has("--programs")) return Ok{};
  if (spelled.command.empty() || spelled.command.front().empty()) {
    return usage("no program to run; expected: horarun [options] program [arguments]");
  }
  return Ok{};
}

// A command with programs of its own needs no ':'.
Status check_colon(const OptionValues& values) {
  if (values.has("--smoke")) return usage("--smoke brings its own program, found ':'");
  for (const char* option : {"--programs", "--multi-prog"}) {
    if (values.has(option)) return usage(std::string(option) + " cannot be used with ':'");
  }
  return Ok{};
}

// --join runs what the launcher of the job says: nothing of a job can be said here.
Result<Command> parse_join(const Spelled& spelled, const OptionValues& values) {
  if (!spelled.command.empty()) {
    return usage("--join takes its program from the job that it joins, found " +
                 quote(spelled.command.front()));
  }
  for (const auto& [row, given] : values.rows()) {
    const std::string_view name = long_name(*row);
    if (name != "--join" && name != "--slots-per-host" && name != "--start-timeout" &&
        name != "--verbose" && row->variable.empty()) {
      return usage(std::string(name) + " cannot be used with --join: it is for the job's horarun");
    }
  }
  Join join;
  join.source = values.text("--join");
  join.slots = parse_int<int>(values.text("--slots-per-host"));
  join.timeout = parse_duration(values.text("--start-timeout"));
  join.verbose = values.has("--verbose");
  return Command(std::move(join));
}

// horarun's own connections; those of --rsh have the options in its command.
bool is_for_ssh(const OptionRow& row) {
  const std::string_view name = long_name(row);
  return name == "--ssh-port" || name == "--ssh-identity-file" || name == "--ssh-config-file" ||
         name == "--accept-new-host-keys";
}

// Options that have no effect because another one is missing, or given, and old names. These are
// warnings, not errors, because configuration files and scripts serve several jobs.
std::vector<std::string> collect_warnings(const Spelled& spelled, const OptionValues& values) {
  std::vector<std::string> out;
  for (const SpelledOption& option : spelled.options) {
    const OptionRow& row = *option.row;
    if (is_for_elastic_jobs(row) && !is_elastic(values)) {
      out.push_back(option.typed + " has no effect without --min-np or --host-discovery-script");
    }
    if (long_name(row) == "--mpi" && is_elastic(values)) {
      out.push_back(option.typed +
                    " has no effect: horarun itself starts the ranks of an elastic job");
    }
    if (is_for_ssh(row)) {
      for (const char* other : {"--rsh", "--listen"}) {
        if (!values.has(other) || values.has("--mpi")) continue;
        out.push_back(option.typed + " has no effect with " + other);
      }
    }
    if (!row.needs.empty() && !values.has(row.needs)) {
      out.push_back(option.typed + " has no effect without " + std::string(row.needs));
    }
    if (long_name(row) == "--log-hide-timestamp") {
      out.push_back(option.typed + " is an old name; use --log-without-timestamp");
    }
    if (long_name(row) == "--no-log-hide-timestamp") {
      out.push_back(option.typed + " is an old name; use --log-with-timestamp");
    }
  }
  // Report an option that is given twice only once.
  std::set<std::string> seen;
  const auto again = std::remove_if(out.begin(), out.end(), [&seen](const std::string& text) {
    return !seen.insert(text).second;
  });
  out.erase(again, out.end());
  return out;
}

// A link of that name is installed next to horarun.
bool is_named_horovodrun(std::string_view program) {
  return program.substr(program.rfind('/') + 1) == "horovodrun";
}

// An ignored setting of a file or a variable may be the reason of an error, so it follows the
// error.
Error with_notes(Error error, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) error.message += "\n  " + note;
  return error;
}

// The programs of the ranks: one, or several of the command line or of a file.
Status read_programs(const OptionValues& values, const Spelled& spelled,
                     const std::vector<ProgramSection>& sections, const ProcessInputs& inputs,
                     JobSpec& job, std::vector<std::string>& warnings) {
  job.command = spelled.command;
  // The module is found by the interpreter that the ranks' PATH has.
  if (values.has("--module")) job.command.insert(job.command.begin(), {"python3", "-m"});
  if (values.has("--programs")) {
    const auto programs = read_program_file(values.text("--programs"), inputs);
    if (!programs) return programs.error();
    HORA_TRY(use_program_file(*programs, spelled, inputs, job, warnings));
  }
  if (values.has("--multi-prog")) HORA_TRY(use_rank_programs(inputs, job));
  return read_program_sections(sections, spelled, inputs, job, warnings);
}

// The ranks' environment: existing variables, and those of -x.
std::vector<std::string> variable_warnings(const ProcessInputs& inputs, const JobSpec& job) {
  std::vector<std::string> names;
  if (inputs.variable_names) names = inputs.variable_names();
  for (const auto& variable : job.variables) {
    if (std::find(names.begin(), names.end(), variable.name) == names.end()) {
      names.push_back(variable.name);
    }
  }
  return misspelt_runtime_variables(names);
}

// All nodes of a platform have read the whole command line; those after the first take part, with
// what node 0 sends them if they share a secret.
Join join_of(const JobSpec& job, PlatformNode node) {
  Join join;
  join.slots = node.slots;
  join.timeout = job.listen->timeout;
  join.verbose = job.verbose;
  join.platform = std::move(node);
  return join;
}

Command launch_command(const OptionValues& values, JobSpec job, std::optional<PlatformNode> node,
                       std::vector<std::string> warnings) {
  if (node && !node->is_first && !job.listen->own_commands) return join_of(job, std::move(*node));
  if (node && job.listen->own_commands) {
    warnings.push_back(
        node->platform +
        "'s nodes share no secret (HORA_JOIN_TOKEN): each runs its own command line, "
        "and another machine that reaches node 0 first can take a node's place");
  }
  const bool dry_run = values.has("--dry-run");
  const bool detach = values.has("--detach");
  if (values.has("--smoke")) {
    return Smoke{std::move(job), std::move(node), dry_run, std::move(warnings), detach};
  }
  return Launch{std::move(job), std::move(node), dry_run, std::move(warnings), detach};
}

// --show-config comes after all checks of values, and needs no program.
Result<Command> parse_job(const Arguments& arguments, const ProcessInputs& inputs, Verb verb,
                          bool as_horovodrun, std::vector<std::string>& warnings) {
  auto spelled = read_spelling(arguments, verb);
  if (!spelled) return std::move(spelled).error();
  auto help = asks_for_help(*spelled, verb);
  if (!help) return std::move(help).error();
  if (*help) {
    std::string& text = (*help)->text;
    if (as_horovodrun) {
      const bool is_version = text == std::string(HORA_VERSION) + "\n";
      text = is_version ? std::string(kHorovodVersion) + "\n" : horovodrun_help(text);
    }
    return Command(std::move(**help));
  }
  auto sections = take_program_sections(*spelled);
  if (!sections) return std::move(sections).error();
  auto settled = settle_options(*spelled, verb, inputs);
  if (!settled) return std::move(settled).error();
  warnings = settled->warnings;
  *spelled = std::move(settled->spelled);
  auto values = check_options(*spelled, verb);
  if (!values) return std::move(values).error();
  if (values->has("--show-config")) {
    const std::string allocation = describe_allocation(*values, inputs);
    return Command(ShowText{values->has("--json") ? show_config_json(*settled, allocation)
                                                  : show_config_text(*settled, allocation)});
  }
  if (values->has("--check-build")) {
    if (!spelled->command.empty()) {
      return usage("--check-build runs nothing, found " + quote(spelled->command.front()));
    }
    return Command(CheckBuild{values->has("--verbose"), values->has("--json"), as_horovodrun});
  }
  if (values->has("--join")) return parse_join(*spelled, *values);

  HORA_TRY(check_command(*values, *spelled));
  if (!sections->empty()) HORA_TRY(check_colon(*values));
  JobSpec job;
  job.command = spelled->command;
  auto node = read_platform(*values, inputs, job);
  if (!node) return std::move(node).error();
  if (auto warning = colon_warning(*spelled, *sections)) warnings.push_back(std::move(*warning));
  HORA_TRY(read_job_options(*values, inputs, job, warnings));
  // Its users start it in loops that read the terminal's or a script's lines themselves. mpirun
  // passes on what it always passed on.
  if (as_horovodrun && !job.by_mpirun && !values->has("--stdin")) {
    job.stdin_policy = StdinPolicy::kNone;
  }
  HORA_TRY(read_programs(*values, *spelled, *sections, inputs, job, warnings));
  HORA_TRY(check_started_once(inputs, job));
  HORA_TRY(read_rankfile(*values, inputs, job));
  HORA_TRY(check_host_filter(job));
  if (verb == kVerbKubernetes)
    HORA_TRY(read_pod_options(*values, inputs, job));  // knows of all ranks
  if (auto warning = launcher_warning(job)) warnings.push_back(std::move(*warning));
  std::ranges::move(collect_warnings(*spelled, *values), std::back_inserter(warnings));
  std::ranges::move(variable_warnings(inputs, job), std::back_inserter(warnings));
  return launch_command(*values, std::move(job), std::move(*node), std::move(warnings));
}

Result<Command> parse_launch(const Arguments& arguments, const ProcessInputs& inputs, Verb verb,
                             bool as_horovodrun) {
  std::vector<std::string> warnings;
  auto command = parse_job(arguments, inputs, verb, as_horovodrun, warnings);
  if (command) return command;
  return with_notes(std::move(command).error(), warnings);
}

// "horarun help doctor" is "horarun doctor --help".
Result<Arguments> read_help(const Arguments& verb) {
  if (verb.empty()) return Arguments{"--help"};
  if (verb.size() > 1) return usage("expected: horarun help [verb]");
  if (verb[0] == "help" || verb[0] == "version" || is_help(verb[0])) return Arguments{"--help"};
  if (is_verb(verb[0])) return Arguments{verb[0], "--help"};
  // All of them where nothing comes close: the list is short.
  const auto close = did_you_mean(verb[0], verb_names());
  return usage("help: there is no verb " + quote(verb[0]) + "; " +
               (close.empty() ? "there are " + join(verb_names(), ", ")
                              : "did you mean " + close.front() + "?"));
}

}  // namespace

Result<Command> parse_command_line(int argc, const char* const* argv, const ProcessInputs& inputs) {
  Arguments arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) {
    return usage("no program to run; expected: horarun [options] program [arguments], or --help");
  }
  // A program whose name is a verb can still be run as ./doctor or after "--".
  // These two came later than programs of their names, which win. Nothing else is searched for.
  const auto is_program = [&] {
    return inputs.has_program && inputs.has_program(arguments.front());
  };
  if (arguments.front() == "help" && !is_program()) {
    auto asked = read_help({arguments.begin() + 1, arguments.end()});
    if (!asked) return std::move(asked).error();
    arguments = std::move(*asked);
  } else if (arguments == Arguments{"version"} && !is_program()) {
    arguments = {"--version"};
  }
  const std::string first = arguments.front();
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (first == "bundle-report") return parse_bundle_report(rest, inputs);
  if (first == "cache") return parse_cache(rest, inputs);
  if (first == "doctor") return parse_doctor(rest, inputs);
  if (first == "rendezvous") return parse_rendezvous(rest);
  if (first == "jobs") return parse_jobs(AskJobs::Action::kList, rest);
  if (first == "top") return parse_jobs(AskJobs::Action::kTop, rest);
  if (first == "attach") return parse_jobs(AskJobs::Action::kAttach, rest);
  if (first == "cancel") return parse_jobs(AskJobs::Action::kCancel, rest);
  if (first == "completion") return parse_completion(rest, inputs);
  if (first == "explain") return parse_explain(rest);
  if (first == "timeline") return parse_timeline(rest);
  const bool as_horovodrun = is_named_horovodrun(argv[0]);
  if (first == "k8s") return parse_launch(rest, inputs, kVerbKubernetes, as_horovodrun);
  return parse_launch(arguments, inputs, kVerbLaunch, as_horovodrun);
}

// A wrong word may come before --json, so that this reads on after it.
bool asks_for_events(int argc, const char* const* argv, const ProcessInputs& inputs) {
  Arguments words(argv + std::min(argc, 1), argv + argc);
  Verb verb = kVerbLaunch;
  if (!words.empty() && is_verb(words.front())) {
    verb = words.front() == "k8s" ? kVerbKubernetes : kVerbCache;
    words.erase(words.begin());
  }
  bool may_be_value = verb == kVerbCache;  // such verbs have no program after their options
  for (std::size_t at = 0; at < words.size() && words[at] != "--"; ++at) {
    const std::string& word = words[at];
    if (word == "--json") return true;
    // The program, or the value of an unknown option.
    if (!word.starts_with("-") && !may_be_value) break;
    const OptionRow* const row = find_option(word, verb);
    if (row != nullptr && row->takes_value()) ++at;
    may_be_value = verb == kVerbCache || row == nullptr;
  }
  const auto text = inputs.variable("HORARUN_JSON");
  return text && parse_switch(*text).value_or(false);
}

}  // namespace hora::launcher
