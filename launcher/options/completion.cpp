// SPDX-License-Identifier: Apache-2.0
// The scripts are generated from the option table, so they cannot miss an option. They run only
// tools that every system has.
#include "launcher/options/completion.h"

#include <algorithm>

#include "launcher/failures/explain.h"
#include "launcher/options/option_table.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// What may follow an option.
enum class Behind { kNothing, kAnything, kFile, kFolder, kHosts, kWords };

Behind behind(const OptionRow& row) {
  if (!row.takes_value()) return Behind::kNothing;
  if (row.kind == ValueKind::kChoice) return Behind::kWords;
  if (long_name(row) == "--hosts") return Behind::kHosts;
  if (row.metavar == "FILE") return Behind::kFile;
  if (row.metavar == "DIR") return Behind::kFolder;
  return Behind::kAnything;
}

std::string names_with(Behind wanted, std::string_view separator) {
  std::string out;
  for (const OptionRow& row : option_table()) {
    if (behind(row) != wanted) continue;
    for (const std::string_view name : names_of(row)) {
      if (!out.empty()) out += separator;
      out += name;
    }
  }
  return out;
}

// The verbs that take options, besides none at all, which starts a job.
struct VerbWithOptions {
  std::string_view name;
  Verb verb;
  std::string_view zsh_arguments;  // specifications of _arguments
};
constexpr VerbWithOptions kWithOptions[] = {
    {"bundle-report", kVerbDoctor, "'1:record:_files'"},
    {"cache", kVerbCache, "'1:action:(ls clean)'"},
    {"doctor", kVerbDoctor, ""},
    {"k8s", kVerbKubernetes, "'1:program:_command_names' '*::arguments:_normal'"},
    {"rendezvous", kVerbRendezvous, ""}};

std::string names_of_verb(Verb verb) {
  std::string out;
  for (const OptionRow& row : option_table()) {
    if (row.has(kHidden) || (row.verbs & verb) == 0) continue;
    for (const std::string_view name : names_of(row)) out += std::string(name) + " ";
  }
  return out;
}

// Of "cpu-list:LIST", the part before the list.
std::string words_of(const OptionRow& row) {
  std::string out;
  for (const std::string_view word : split(row.metavar, '|')) {
    if (!out.empty()) out += ' ';
    out += word.substr(0, word.find(':') == word.npos ? word.npos : word.find(':') + 1);
  }
  return out;
}

// What may follow a verb; empty: options and files.
std::string words_behind(const VerbRow& verb) {
  if (verb.name == "explain") return join(explained_words(), " ") + " " + std::string(verb.words);
  if (verb.name == "help") return join(verb_names(), " ");
  return std::string(verb.words);
}

std::string bash_words_behind_verbs() {
  std::string out;
  for (const VerbRow& verb : verbs()) {
    const std::string words = words_behind(verb);
    if (words.empty()) continue;
    out += "      " + std::string(verb.name) + ") COMPREPLY=($(compgen -W '" + words +
           "' -- \"$cur\")); return ;;\n";
  }
  return out;
}

// An option of one verb is an error after another.
std::string bash_options_of_verbs() {
  std::string out = "  local options='" + names_of_verb(kVerbLaunch) +
                    "'\n"
                    "  case ${COMP_WORDS[1]} in\n";
  for (const auto& [name, verb, arguments] : kWithOptions) {
    out += "    " + std::string(name) + ") options='" + names_of_verb(verb) + "' ;;\n";
  }
  return out + "  esac\n";
}

// Prints known host names, one per line. POSIX sh, so that every shell can run it. Patterns and
// hashed names are left out.
constexpr std::string_view kHostLister =
    "{ cat ~/.ssh/config /etc/ssh/ssh_config 2>/dev/null |\n"
    "      awk 'tolower($1) == \"host\" { for (i = 2; i <= NF; i++) if ($i !~ /[*?!]/) print $i "
    "}'\n"
    "    cat ~/.ssh/known_hosts /etc/ssh/ssh_known_hosts 2>/dev/null |\n"
    "      awk '$1 !~ /^[|#@]/ { n = split($1, a, \",\"); for (i = 1; i <= n; i++) if (a[i] !~ "
    "/[\\[*?]/) print a[i] }'\n"
    "  } | sort -u";

std::string bash_script() {
  std::string out =
      "# bash completion for horarun; load it by: source <(horarun completion bash)\n"
      "_horarun_hosts() {\n  " +
      std::string(kHostLister) +
      "\n}\n"
      "_horarun() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} head\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 2 ]; then\n"
      // The word after a verb has its own candidates.
      "    case $prev in\n" +
      bash_words_behind_verbs() +
      "    esac\n"
      "  fi\n"
      "  case $prev in\n"
      "    " +
      names_with(Behind::kHosts, "|") +
      ")\n"
      // Hosts are a list: complete what follows the last comma, and keep the rest as a prefix.
      "      head=; case $cur in *,*) head=${cur%,*}, ;; esac\n"
      "      COMPREPLY=($(compgen -P \"$head\" -W \"$(_horarun_hosts)\" -- \"${cur##*,}\"))\n"
      "      compopt -o nospace 2>/dev/null; return ;;\n"
      "    " +
      names_with(Behind::kFile, "|") +
      ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
      "    " +
      names_with(Behind::kFolder, "|") + ") COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n";
  for (const OptionRow& row : option_table()) {
    if (behind(row) != Behind::kWords) continue;
    out += "    " + std::string(long_name(row)) + ") COMPREPLY=($(compgen -W '" + words_of(row) +
           "' -- \"$cur\")); return ;;\n";
  }
  out += "    " + names_with(Behind::kAnything, "|") +
         ") return ;;\n"
         "  esac\n" +
         bash_options_of_verbs() +
         "  case $cur in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
         "    *)\n"
         "      COMPREPLY=($(compgen -c -- \"$cur\"))\n"
         // Verbs only count as the first word.
         "      [ \"$COMP_CWORD\" -ne 1 ] || COMPREPLY+=($(compgen -W '" +
         join(verb_names(), " ") +
         "' -- \"$cur\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o default -F _horarun horarun\n";
  return out;
}

// Quotes, brackets and colons have a meaning in _arguments' specifications.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':') {
      out += std::string("\\") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh_action(const OptionRow& row) {
  const std::string value =
      ":" + zsh_text(row.kind == ValueKind::kChoice ? "value" : row.metavar) + ":";
  switch (behind(row)) {
    case Behind::kNothing:
      return "";
    case Behind::kAnything:
      return value + " ";
    case Behind::kFile:
      return value + "_files";
    case Behind::kFolder:
      return value + "_files -/";
    case Behind::kHosts:
      return value + "_horarun_hosts";
    case Behind::kWords:
      return value + "(" + zsh_text(words_of(row)) + ")";
  }
  return "";
}

std::string zsh_words_behind_verbs() {
  std::string out;
  for (const VerbRow& verb : verbs()) {
    const std::string words = words_behind(verb);
    if (words.empty()) continue;
    out += "      " + std::string(verb.name) + ") compadd - " + words + "; return ;;\n";
  }
  return out;
}

std::string zsh_options(Verb verb) {
  std::string out;
  for (const OptionRow& row : option_table()) {
    if (row.has(kHidden) || (row.verbs & verb) == 0) continue;
    for (const std::string_view name : names_of(row)) {
      out += "    '" + std::string(row.has(kRepeats) ? "*" : "") + std::string(name) + "[" +
             zsh_text(help_of(row, verb)) + "]" + zsh_action(row) + "' \\\n";
    }
  }
  return out;
}

// _arguments looks for options in front of the first word alone, which would be the verb.
std::string zsh_options_of_verbs() {
  std::string out = "  (( CURRENT > 2 )) && case $words[2] in\n";
  for (const auto& [name, verb, arguments] : kWithOptions) {
    out += "    " + std::string(name) + ")\n  shift words; (( CURRENT-- )); _arguments -S -s \\\n" +
           zsh_options(verb) + "    " + std::string(arguments) + "; return ;;\n";
  }
  return out + "  esac\n";
}

std::string zsh_script() {
  return "#compdef horarun\n"
         "# zsh completion for horarun; put it into a folder of $fpath as _horarun\n"
         "_horarun_hosts() {\n"
         "  local -a names\n"
         "  names=(${(f)\"$(" +
         std::string(kHostLister) +
         ")\"})\n"
         "  _sequence compadd - $names\n"
         "}\n"
         // After the program, its own completion takes over.
         "_horarun_arguments() {\n"
         "  if (( CURRENT == 2 )); then\n"
         "    case $words[1] in\n" +
         zsh_words_behind_verbs() +
         "    esac\n"
         "  fi\n"
         "  _normal\n"
         "}\n"
         "_horarun() {\n"
         "  local -a verbs\n"
         "  verbs=(" +
         join(verb_names(), " ") + ")\n" + zsh_options_of_verbs() +
         // -S: no options after "--"; -s: single letters may be combined.
         "  _arguments -S -s \\\n" + zsh_options(kVerbLaunch) +
         "    '1:program:{ compadd -a verbs; _command_names }' \\\n"
         "    '*::arguments:_horarun_arguments'\n"
         "}\n"
         "_horarun \"$@\"\n";
}

// In fish's single quotes, only the quote and the backslash need escaping.
std::string fish_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// The condition for fish to offer the option: its verb is given, or no other one.
std::string fish_condition(const OptionRow& row) {
  const bool is_of_jobs = (row.verbs & kVerbLaunch) != 0;
  std::string out;
  for (const auto& [name, verb, arguments] : kWithOptions) {
    if (((row.verbs & verb) == 0) == is_of_jobs) out += " " + std::string(name);
  }
  if (out.empty()) return out;
  return std::string(" -n '") + (is_of_jobs ? "not " : "") + "__fish_seen_subcommand_from" + out +
         "'";
}

std::string fish_script() {
  std::string out =
      "# fish completion for horarun; put it into ~/.config/fish/completions/horarun.fish\n"
      "function __horarun_hosts\n  sh -c '" +
      fish_text(kHostLister) +
      "'\nend\n"
      "complete -c horarun -n '__fish_is_first_arg' -a '" +
      join(verb_names(), " ") + "'\n";
  for (const VerbRow& verb : verbs()) {
    const std::string words = words_behind(verb);
    if (words.empty()) continue;
    out += "complete -c horarun -n '__fish_seen_subcommand_from " + std::string(verb.name) +
           "' -xa '" + words + "'\n";
  }
  for (const OptionRow& row : option_table()) {
    if (row.has(kHidden)) continue;
    out += "complete -c horarun" + fish_condition(row);
    // fish distinguishes long options, short ones, and old-style ones such as -np.
    for (const std::string_view name : names_of(row)) {
      if (name.substr(0, 2) == "--") {
        out += " -l " + std::string(name.substr(2));
      } else if (name.size() == 2) {
        out += " -s " + std::string(name.substr(1));
      } else {
        out += " -o " + std::string(name.substr(1));
      }
    }
    out += " -d '" + fish_text(row.help) + "'";
    switch (behind(row)) {
      case Behind::kNothing:
        break;
      case Behind::kAnything:
        out += " -x";
        break;
      case Behind::kFile:
        out += " -r -F";
        break;
      case Behind::kFolder:
        out += " -xa '(__fish_complete_directories)'";
        break;
      case Behind::kHosts:
        out += " -xa '(__horarun_hosts)'";
        break;
      case Behind::kWords:
        out += " -xa '" + words_of(row) + "'";
        break;
    }
    out += "\n";
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  return make_error(ErrorCode::kUsage,
                    "completion: expected bash, zsh or fish, found " + quote(shell));
}

}  // namespace hora::launcher
