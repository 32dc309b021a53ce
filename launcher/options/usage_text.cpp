// SPDX-License-Identifier: Apache-2.0
// All texts about options come from the option table.
#include "launcher/options/usage_text.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kNameColumn = 34;  // where the help text begins
constexpr std::size_t kWidth = 80;

constexpr std::string_view kUsageLaunch =
    "usage: horarun [options] program [arguments] [: -np N program [arguments]]...\n"
    "       horarun [options] --smoke | horarun --join FILE|- | horarun cancel JOB\n"
    "       horarun doctor [-H hosts] | horarun cache ls|clean | horarun jobs\n"
    "       horarun rendezvous --port N | horarun explain [code] | horarun attach JOB\n"
    "       horarun top [JOB]\n"
    "       horarun k8s [options] program   |   horarun timeline merge FILE... -o OUT\n"
    "       horarun bundle-report RECORD.json -o OUT.json | horarun completion SHELL\n"
    "Starts the ranks of a distributed job here and on other hosts.\n";

struct Example {
  std::string_view command;
  std::string_view meaning;  // for the manual page
};
constexpr Example kExamples[] = {
    {"horarun -np 4 python3 train.py", "Four ranks on this machine."},
    {"horarun -np 8 -H a:4,b:4 python3 train.py", "Four ranks on each of the hosts a and b."},
    {"horarun --hostfile hosts --ship train.py --report job.html python3 train.py",
     "Copy the script to all hosts of a file, and write a report."},
    {"horarun -np 4 -H a:2,b:2 --smoke", "Check every collective on these hosts."},
    {"horarun doctor -H a:2,b:2", "Find out what would keep a job from running there."},
};

// What horarun itself reads and writes.
struct ManualEntry {
  std::string_view name;
  std::string_view meaning;
};
constexpr ManualEntry kManualVariables[] = {
    {"HORARUN_NAME",
     "The value of the option --name, such as HORARUN_START_TIMEOUT=60s. The "
     "command line wins."},
    {"HOROVOD_*, HORA_*", "Settings of the runtime; they reach the ranks."},
    {"XDG_CONFIG_HOME, XDG_CACHE_HOME",
     "Where the files below are, instead of in the home "
     "directory."},
};
constexpr ManualEntry kFiles[] = {
    {"hora.yaml, ~/.config/hora/config.yaml, /etc/hora/config.yaml",
     "Options of the project, the user and the system, in order of precedence. --show-config "
     "shows where a value comes from."},
    {"~/.ssh/config, ~/.ssh/known_hosts", "How to reach hosts, and their keys, as for ssh."},
    {"~/.cache/hora", "On hosts: parts that later jobs need. See horarun cache."},
    {"~/.cache/hora-launcher", "On this machine: hashes of what was sent. May be removed."},
};

constexpr std::string_view kUsageCache =
    "usage: horarun cache ls [options]\n"
    "       horarun cache clean [options]\n"
    "Lists what is kept on the hosts for later jobs, with size and last use, or\n"
    "removes what no job uses, or only the oldest. Without -H and --hostfile: on this\n"
    "machine.\n";

constexpr std::string_view kUsageDoctor =
    "usage: horarun doctor [options]\n"
    "Checks whether jobs can run on the hosts of -H or --hostfile, or else on this\n"
    "machine, and reports what would stop them. Exits with 1 if it finds an error,\n"
    "and with 0 otherwise.\n";

constexpr std::string_view kUsageRendezvous =
    "usage: horarun rendezvous [options]\n"
    "Runs a standalone rendezvous (key-value) server until it is interrupted.\n";

constexpr std::string_view kUsageKubernetes =
    "usage: horarun k8s --image IMAGE --workers N [options] program [arguments]\n"
    "Creates pods with kubectl, runs the job in them and deletes them. The image\n"
    "needs only a shell.\n";

constexpr std::string_view kUsageJobs =
    "usage: horarun jobs [--json]   list your jobs that run on this machine\n"
    "       horarun top [JOB]       show its ranks every 2 s, the one that delays most first\n"
    "       horarun attach JOB      follow the output of a job of --detach\n"
    "       horarun cancel JOB      end a job as Ctrl-C does, and wait for its end\n"
    "JOB is the number that horarun jobs shows: the process of the job's horarun.\n"
    "Ctrl-C ends attach and leaves the job.\n";

std::string_view usage_of(Verb verb) {
  if (verb == kVerbJobs) return kUsageJobs;
  if (verb == kVerbCache) return kUsageCache;
  if (verb == kVerbRendezvous) return kUsageRendezvous;
  if (verb == kVerbDoctor) return kUsageDoctor;
  if (verb == kVerbKubernetes) return kUsageKubernetes;
  return kUsageLaunch;
}

// The rendezvous server has few options, so it shows them all.
bool is_shown(const OptionRow& row, Verb verb, bool all) {
  if ((row.verbs & verb) == 0 || row.has(kHidden)) return false;
  return all || row.has(kCommon) || verb == kVerbRendezvous;
}

// "-np, --num-proc N"
std::string name_and_value(const OptionRow& row, std::size_t most_names = 2) {
  auto names = names_of(row);
  if (names.size() > most_names) names.resize(most_names);
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  if (row.takes_value()) out += " " + std::string(row.metavar);
  return out;
}

// Broken at blanks into lines that fit next to the names.
std::string wrapped_help(std::string_view text) {
  constexpr std::size_t kRoom = kWidth - kNameColumn;
  std::string out;
  while (text.size() > kRoom) {
    std::size_t blank = text.rfind(' ', kRoom);
    // A default stays in one piece.
    if (text.substr(0, blank).ends_with("(default:")) blank = text.rfind(' ', blank - 1);
    if (blank == std::string_view::npos) break;
    out += std::string(text.substr(0, blank)) + "\n" + std::string(kNameColumn, ' ');
    text.remove_prefix(blank + 1);
  }
  return out + std::string(text) + "\n";
}

// A name that does not fit into the column is shortened to one spelling, then set on a line of its
// own.
std::string help_line(const OptionRow& row, Verb verb) {
  std::string line = "  " + name_and_value(row);
  if (line.size() + 2 > kNameColumn) line = "  " + name_and_value(row, 1);
  if (line.size() + 2 > kNameColumn) {
    line += "\n" + std::string(kNameColumn, ' ');
  } else {
    line.resize(kNameColumn, ' ');
  }
  return line + wrapped_help(help_of(row, verb));
}

// Visits the groups in the order of their first row.
template <typename Visit>
void for_each_group(Visit visit) {
  std::vector<std::string_view> seen;
  for (const OptionRow& row : option_table()) {
    if (std::find(seen.begin(), seen.end(), row.group) != seen.end()) continue;
    seen.push_back(row.group);
    visit(row.group);
  }
}

// roff would read '-' as a hyphen and a leading quote as a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else {
      out += c;
    }
  }
  return out;
}

// Bold names with separators, then the value in italics.
std::string roff_names(const OptionRow& row) {
  std::string out;
  for (const std::string_view name : names_of(row)) {
    if (!out.empty()) out += ", ";
    out += "\\fB" + roff(name) + "\\fR";
  }
  if (row.takes_value()) out += " \\fI" + roff(row.metavar) + "\\fR";
  return out;
}

std::string roff_list(std::span<const ManualEntry> entries) {
  std::string out;
  for (const ManualEntry& entry : entries) {
    out += ".TP\n\\fB" + roff(entry.name) + "\\fR\n" + roff(entry.meaning) + "\n";
  }
  return out;
}

std::string sentence(const OptionRow& row) {
  std::string out(row.help);
  if (!row.variable.empty()) {
    out += "; sets " + std::string(row.variable);
    if (!row.takes_value()) out += "=" + std::string(row.flag_value);
  }
  return out;
}

}  // namespace

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string help_text(Verb verb, bool all) {
  std::string out(usage_of(verb));
  for_each_group([&](std::string_view group) {
    bool is_first = true;
    for (const OptionRow& row : option_table()) {
      if (row.group != group || !is_shown(row, verb, all)) continue;
      if (is_first) out += "\n" + std::string(heading_of(group, verb)) + ":\n";
      is_first = false;
      out += help_line(row, verb);
    }
  });
  if (verb != kVerbLaunch) return out;
  out += "\nExamples:\n";
  for (const Example& example : kExamples) out += "  " + std::string(example.command) + "\n";
  return out;
}

// The longer text first: the shorter one is a part of it.
std::string horovodrun_help(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {"standard input (default: 0)", "standard input (default: none)"}, {"horarun", "horovodrun"}};
  for (const auto& [ours, theirs] : kChanges) {
    for (std::size_t at = text.find(ours); at != text.npos; at = text.find(ours, at)) {
      text.replace(at, ours.size(), theirs);
      at += theirs.size();
    }
  }
  return text;
}

// No date: the page must not differ between two builds of one version.
std::string manual_page(const std::string& version) {
  std::string out = ".TH HORARUN 1 \"\" \"Hora " + version + "\" \"User Commands\"\n";
  out += ".SH NAME\nhorarun \\- start the ranks of a distributed job\n";
  out +=
      ".SH SYNOPSIS\n"
      ".B horarun\n[\\fIoptions\\fR] \\fIprogram\\fR [\\fIarguments\\fR]\n.br\n"
      ".B horarun\n[\\fIoptions\\fR] \\fB\\-\\-smoke\\fR\n.br\n"
      ".B horarun\n\\fB\\-\\-join\\fR \\fIfile\\fR|\\-\n";
  for (const VerbRow& verb : verbs()) {
    out += ".br\n.B horarun " + roff(verb.name) + "\n";
    if (!verb.arguments.empty()) out += roff(verb.arguments) + "\n";
  }
  out +=
      ".SH DESCRIPTION\n"
      "Starts \\fIprogram\\fR once per rank on this machine or on other hosts, where nothing needs "
      "to\n"
      "be installed, shows their output with the rank before every line, and ends with one exit "
      "code.\n"
      "The program begins with the first word that is not an option; \\fB\\-\\-\\fR ends the "
      "options.\n"
      "Long options may be abbreviated while they stay unambiguous.\n";
  out += ".SH VERBS\n";
  for (const VerbRow& verb : verbs()) {
    out += ".TP\n\\fB" + roff(verb.name) + "\\fR\n" + roff(verb.purpose) + "\n";
  }
  out += ".PP\n\\fBhorarun help\\fR \\fIverb\\fR says more.\n.SH OPTIONS\n";
  for_each_group([&](std::string_view group) {
    out += ".SS " + roff(group) + "\n";
    for (const OptionRow& row : option_table()) {
      if (row.group != group || row.has(kHidden)) continue;
      out += ".TP\n" + roff_names(row) + "\n" + roff(sentence(row)) + "\n";
    }
  });
  out +=
      ".SH EXIT STATUS\n"
      "0 when every rank succeeded; else the code of the rank that failed first, 128 + N when "
      "signal\n"
      "N ended it; 2 for a mistake on the command line; 124 when a time limit passed; 125 for a "
      "failure\n"
      "of horarun itself; 126 and 127 when the program cannot be executed or does not exist.\n"
      "\\fBhorarun explain\\fR says more of a code.\n";
  out += ".SH ENVIRONMENT\n" + roff_list(kManualVariables) + ".SH FILES\n" + roff_list(kFiles);
  out += ".SH EXAMPLES\n";
  for (const Example& example : kExamples) {
    out += ".TP\n\\fB" + roff(example.command) + "\\fR\n" + roff(example.meaning) + "\n";
  }
  return out + ".SH SEE ALSO\n.BR ssh (1),\n.BR ssh_config (5)\n";
}

std::string verb_reference() {
  // Of jobs there is no verb.
  const std::vector<std::pair<std::string, std::string_view>> jobs = {
      {"horarun [options] program [arguments]", "start the ranks of a job"},
      {"horarun [options] --smoke", "check every collective on the given hosts"},
      {"horarun [options] --dry-run program ...", "print what would run"},
      {"horarun --join FILE|-", "add this machine to a job of --listen"},
      {"horarun --check-build [--verbose]", "print what this build can do"}};
  auto lines = jobs;
  for (const VerbRow& verb : verbs()) {
    std::string synopsis = "horarun " + std::string(verb.name);
    if (!verb.arguments.empty()) synopsis += " " + std::string(verb.arguments);
    lines.emplace_back(std::move(synopsis), verb.purpose);
  }
  std::size_t width = 0;
  for (const auto& line : lines) width = std::max(width, line.first.size() + 2);
  std::string out = "```\n";
  for (auto& [synopsis, purpose] : lines) {
    synopsis.resize(width, ' ');
    out += synopsis + std::string(purpose) + "\n";
  }
  return out + "```\n";
}

std::string option_reference() {
  std::string out;
  for_each_group([&](std::string_view group) {
    out += "### " + std::string(group) + "\n\n| Option | Meaning |\n|---|---|\n";
    for (const OptionRow& row : option_table()) {
      if (row.group != group) continue;
      std::string names;
      for (const std::string_view name : names_of(row)) {
        names += (names.empty() ? "`" : ", `") + std::string(name) + "`";
      }
      if (row.takes_value()) names += " `" + markdown_cell(row.metavar) + "`";
      out += "| " + names + " | " + markdown_cell(sentence(row)) + " |\n";
    }
    out += "\n";
  });
  return out;
}

}  // namespace hora::launcher
