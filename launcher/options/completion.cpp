// SPDX-License-Identifier: Apache-2.0
// Everything follows from the option table and the table of verbs. Files, folders, programs and the
// arguments of programs are left to the shells, which know quotes, tildes and other completions.
#include "launcher/options/completion.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "launcher/failures/explain.h"
#include "launcher/options/option_check.h"
#include "launcher/options/option_table.h"
#include "launcher/options/program_sections.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kWords = "words";
constexpr std::string_view kList = "list";
constexpr std::string_view kFiles = "files";
constexpr std::string_view kFolders = "folders";
constexpr std::string_view kProgram = "program";

struct Offer {
  std::string kind = std::string(kWords);
  std::string prefix;
  Words lines;

  // Only what the last word begins is offered.
  void add(std::string_view typed, std::string_view word, std::string_view description = {}) {
    if (!word.starts_with(typed)) return;
    lines.push_back(std::string(word) + (description.empty() ? "" : "\t") +
                    std::string(description));
  }
};

Offer offer_of(std::string_view kind, std::string_view prefix = {}) {
  return {std::string(kind), std::string(prefix), {}};
}

Offer offer_words(std::string_view typed, const Words& words) {
  Offer offer;
  for (const std::string& word : words) offer.add(typed, word);
  return offer;
}

std::string read_or_nothing(const ProcessInputs& inputs, const std::string& path) {
  auto text = inputs.read_file(path);
  return text ? std::move(*text) : std::string();
}

// Patterns are left out.
void add_configured_hosts(const std::string& text, std::set<std::string>& names) {
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split_shell_words(line);
    if (!words || words->empty() || !equals_ignoring_case(words->front(), "Host")) continue;
    for (std::size_t i = 1; i < words->size(); ++i) {
      const std::string& name = (*words)[i];
      if (name.find_first_of("*?!") == name.npos) names.insert(name);
    }
  }
}

// Hashed names, marks, patterns and names with a port are left out.
void add_known_hosts(const std::string& text, std::set<std::string>& names) {
  for (const std::string_view line : split(text, '\n')) {
    const std::string_view field = line.substr(0, line.find(' '));
    if (field.empty() || field.find_first_of("|#@") == 0) continue;
    for (const std::string_view name : split(field, ',')) {
      if (name.find_first_of("[*?!") == name.npos) names.emplace(name);
    }
  }
}

std::set<std::string> host_names(const ProcessInputs& inputs) {
  const std::string home = inputs.variable("HOME").value_or("");
  std::set<std::string> names;
  for (const std::string& file : {home + "/.ssh/config", std::string("/etc/ssh/ssh_config")}) {
    add_configured_hosts(read_or_nothing(inputs, file), names);
  }
  for (const std::string& file :
       {home + "/.ssh/known_hosts", std::string("/etc/ssh/ssh_known_hosts")}) {
    add_known_hosts(read_or_nothing(inputs, file), names);
  }
  return names;
}

// `head` is what stands before the value in the last word, as in "--hosts=a:2,".
Offer offer_hosts(std::string head, std::string_view typed, std::string_view separators,
                  const ProcessInputs& inputs) {
  const std::size_t last = typed.find_last_of(separators);
  if (last != typed.npos) {
    head += typed.substr(0, last + 1);
    typed.remove_prefix(last + 1);
  }
  Offer offer = offer_of(kList);
  for (const std::string& name : host_names(inputs))
    offer.add(head + std::string(typed), head + name);
  return offer;
}

// What a word of a choice begins, as "cpu-list:" or "rankfile:file=", takes the rest of the value.
Offer offer_choices(const OptionRow& row, const std::string& head, std::string_view typed) {
  Offer offer;
  for (const std::string_view word : split(row.metavar, '|')) {
    const std::size_t colon = word.find(':');
    const std::string_view start = word.substr(0, word.find_last_of(":=") + 1);
    if (colon != word.npos && typed.starts_with(start) && word.ends_with("FILE")) {
      return offer_of(kFiles, head + std::string(start));
    }
    const std::string_view shown = colon == word.npos ? word : start;
    if (shown.starts_with(typed) && colon != word.npos) offer.kind = kList;
    offer.add(head + std::string(typed), head + std::string(shown));
  }
  // A blank follows a word that is complete, even if another one is not.
  if (offer.lines.size() > 1) offer.kind = kWords;
  return offer;
}

Offer offer_value(const OptionRow& row, const std::string& head, std::string_view typed,
                  const ProcessInputs& inputs) {
  const std::string_view name = long_name(row);
  if (row.kind == ValueKind::kChoice) return offer_choices(row, head, typed);
  if (row.kind == ValueKind::kCountOrAuto) {
    return offer_words(head + std::string(typed), {head + "auto"});
  }
  if (name == "--hosts") return offer_hosts(head, typed, ",", inputs);
  if (name == "--include" || name == "--exclude") return offer_hosts(head, typed, "@", inputs);
  if (row.metavar == "FILE" || row.metavar == "FILE|-" || row.metavar == "PATH" ||
      row.metavar == "SCRIPT") {
    return offer_of(kFiles, head);
  }
  if (row.metavar == "DIR") return offer_of(kFolders, head);
  if (row.metavar == "COMMAND" && head.empty()) return offer_of(kProgram);
  if (name != "--env" || !inputs.variable_names) return {};
  Offer offer = offer_of(kList);
  for (const std::string& variable : inputs.variable_names()) {
    offer.add(head + std::string(typed), head + variable);
  }
  return offer;
}

// "--opt=value" and "-Hvalue"; nothing for a name that is still being typed.
std::optional<Offer> offer_glued_value(const std::string& typed, Verb verb,
                                       const ProcessInputs& inputs) {
  const std::size_t equals = typed.find('=');
  if (equals != typed.npos) {
    const OptionRow* const row = find_option(typed.substr(0, equals), verb);
    if (row == nullptr) return Offer();
    if (long_name(*row) == "--help") return offer_words(typed, {typed.substr(0, equals) + "=all"});
    if (!row->takes_value()) return Offer();
    return offer_value(*row, typed.substr(0, equals + 1), typed.substr(equals + 1), inputs);
  }
  for (const std::string_view name : {"-H", "-i"}) {
    const OptionRow* const row = find_option(name, verb);
    if (row == nullptr || typed.size() <= name.size() || !typed.starts_with(name)) continue;
    return offer_value(*row, std::string(name), std::string_view(typed).substr(name.size()),
                       inputs);
  }
  return std::nullopt;
}

using Accepts = bool (*)(const OptionRow&);

Offer offer_options(const std::string& typed, Verb verb, Accepts accepts,
                    const ProcessInputs& inputs) {
  if (auto value = offer_glued_value(typed, verb, inputs)) return std::move(*value);
  Offer offer;
  for (const OptionRow& row : option_table()) {
    if (row.has(kHidden) || (row.verbs & verb) == 0 || !accepts(row)) continue;
    for (const std::string_view name : names_of(row)) offer.add(typed, name, help_of(row, verb));
  }
  return offer;
}

// The option in front of the last word that still lacks its value.
const OptionRow* option_without_value(Words before, Verb verb) {
  if (before.empty()) return nullptr;
  const OptionRow* const row = find_option(before.back(), verb);
  if (row == nullptr || !row->takes_value()) return nullptr;
  before.pop_back();
  const auto spelled = read_spelling(before, verb);
  return spelled && spelled->command.empty() && !spelled->after_dashes ? row : nullptr;
}

bool accepts_all(const OptionRow&) { return true; }

bool has_option(const Spelled& spelled, std::string_view name) {
  return std::any_of(
      spelled.options.begin(), spelled.options.end(),
      [name](const SpelledOption& option) { return long_name(*option.row) == name; });
}

// Whether the verb has options alone is the caller's to know; `offset` is how many words stand
// before these.
Offer complete_launch(const Words& words, Verb verb, std::size_t offset, Accepts accepts,
                      const ProcessInputs& inputs) {
  const std::string& typed = words.back();
  const Words before(words.begin(), words.end() - 1);
  const bool runs_programs = verb == kVerbLaunch || verb == kVerbKubernetes;
  const auto spelled = read_spelling(before, verb);
  if (!spelled) {
    const OptionRow* const row = option_without_value(before, verb);
    return row != nullptr ? offer_value(*row, "", typed, inputs) : offer_of(kFiles);
  }
  const auto& command = spelled->command;
  if (!runs_programs) {
    return command.empty() ? offer_options(typed, verb, accepts, inputs) : Offer();
  }
  if (command.empty()) {
    if (!spelled->after_dashes && typed.starts_with('-')) {
      return offer_options(typed, verb, accepts, inputs);
    }
    const bool is_file = has_option(*spelled, "--multi-prog") || has_option(*spelled, "--module");
    return offer_of(is_file ? kFiles : kProgram);
  }
  const auto colon = std::find(command.rbegin(), command.rend(), ":");
  if (!spelled->after_dashes && colon != command.rend()) {
    Words section(colon.base(), command.end());
    section.push_back(typed);
    const std::size_t start = offset + words.size() - section.size();
    return complete_launch(section, verb, start, is_option_of_program, inputs);
  }
  return offer_of("arguments " + std::to_string(offset + before.size() - command.size()));
}

Offer complete_timeline(const Words& words) {
  if (words.size() == 1) return offer_words(words.back(), {"merge"});
  return words.back().starts_with('-') ? offer_words(words.back(), {"-o"}) : offer_of(kFiles);
}

Offer complete_bundle_report(const Words& words, const ProcessInputs& inputs) {
  if (words.size() == 2) return offer_words(words.back(), {"-o"});
  if (words.size() <= 3) return offer_of(kFiles);
  return complete_launch({words.begin() + 3, words.end()}, kVerbDoctor, 0, accepts_all, inputs);
}

// `words` stand after the verb.
Offer complete_verb(std::string_view verb, const Words& words, const ProcessInputs& inputs) {
  const std::string& typed = words.back();
  const bool is_first = words.size() == 1;
  if (verb == "k8s") return complete_launch(words, kVerbKubernetes, 1, accepts_all, inputs);
  if (verb == "doctor") return complete_launch(words, kVerbDoctor, 1, accepts_all, inputs);
  if (verb == "jobs" || verb == "top" || verb == "attach" || verb == "cancel") {
    return complete_launch(words, kVerbJobs, 1, accepts_all, inputs);
  }
  if (verb == "rendezvous") return complete_launch(words, kVerbRendezvous, 1, accepts_all, inputs);
  if (verb == "cache" && !is_first) {
    return complete_launch({words.begin() + 1, words.end()}, kVerbCache, 2, accepts_all, inputs);
  }
  if (is_first && typed.starts_with('-')) return offer_words(typed, {"--help"});
  if (verb == "timeline") return complete_timeline(words);
  if (verb == "bundle-report") return complete_bundle_report(words, inputs);
  if (!is_first) return {};
  if (verb == "help") return offer_words(typed, verb_names());
  for (const VerbRow& row : verbs()) {
    if (row.name != verb) continue;
    Offer offer;
    for (const std::string_view word : split(row.words, ' ')) offer.add(typed, word);
    if (verb != "explain") return offer;
    for (const std::string& word : explained_words()) offer.add(typed, word);
    return offer;
  }
  return {};
}

}  // namespace

std::string complete_words(const std::vector<std::string>& words, const ProcessInputs& inputs) {
  Offer offer;
  if (words.size() > 1 && is_verb(words.front())) {
    offer = complete_verb(words.front(), {words.begin() + 1, words.end()}, inputs);
  } else if (!words.empty()) {
    offer = complete_launch(words, kVerbLaunch, 0, accepts_all, inputs);
  }
  if (words.size() == 1 && offer.kind == kProgram) {
    for (const VerbRow& row : verbs()) offer.add(words.front(), row.name, row.purpose);
  }
  std::string out = offer.kind + "\n" + offer.prefix + "\n";
  for (const std::string& line : offer.lines) out += line + "\n";
  return out;
}

namespace {

// bash takes '=', ':' and '@' for words of their own; horarun does not, and bash replaces what
// stands after the last one alone. Where nothing is offered, bash completes file names, with all
// that belongs to quotes and tildes.
constexpr std::string_view kBash =
    R"(# bash completion for horarun; load it by: source <(horarun completion bash)
_horarun_programs() {
  local IFS=: folder file
  for folder in $PATH; do
    for file in "$folder/$1"*; do
      if [ -f "$file" ] && [ -x "$file" ]; then printf '%s\n' "${file##*/}"; fi
    done
  done | sort -u
}
_horarun() {
  local line=${COMP_LINE:0:COMP_POINT} word= words=() starts=() start=0 i
  for ((i = 0; i < COMP_CWORD; i++)); do
    line=${line#"${line%%[![:space:]]*}"}
    [ -n "$word" ] || start=$i
    word+=${COMP_WORDS[i]}
    line=${line#"${COMP_WORDS[i]}"}
    case $line in
      "" | [[:space:]]*) words+=("$word") starts+=("$start") word= ;;
    esac
  done
  line=${line#"${line%%[![:space:]]*}"}
  local current=$word${line}
  case $line in [\"\']*) current=$word${line:1} ;; esac
  local reply=() breaks=${COMP_WORDBREAKS//[^=:@]} kept=
  mapfile -t reply < <("${words[0]/#\~/$HOME}" completion -- "${words[@]:1}" "$current" 2>/dev/null)
  [ -z "$breaks" ] || kept=${current%"${current##*[$breaks]}"}
  COMPREPLY=()
  case ${reply[0]-} in
    files) compopt -o filenames; return ;;
    folders) compopt +o default -o dirnames; return ;;
    arguments\ *)
      start=${starts[${reply[0]#* } + 1]}
      if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$start"
      elif declare -F _command_offset >/dev/null; then
        _command_offset "$start"
      fi
      return ;;
    program)
      case $current in
        "" | */* | \~*) ;;
        *) mapfile -t COMPREPLY < <(_horarun_programs "$current") ;;
      esac ;;
    list) compopt +o default -o nospace ;;
    *) compopt +o default ;;
  esac
  for ((i = 2; i < ${#reply[@]}; i++)); do
    word=${reply[i]%%$'\t'*}
    COMPREPLY+=("${word#"$kept"}")
  done
}
complete -o default -F _horarun horarun
)";

constexpr std::string_view kZsh = R"(#compdef horarun
# zsh completion for horarun; put it into a folder of $fpath as _horarun
_horarun() {
  local -a reply offered
  local line word
  reply=("${(@f)$(${~words[1]} completion -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
  for line in "${(@)reply[3,-1]}"; do
    word=${line%%$'\t'*}
    offered+=("${word//:/\\:}${${line#$word}/$'\t'/:}")
  done
  case $reply[1] in
    (files) compset -p ${#reply[2]}; _files ;;
    (folders) compset -p ${#reply[2]}; _files -/ ;;
    (arguments*)
      local -i at=${reply[1]#* }+1
      shift at words
      (( CURRENT -= at ))
      _normal || _files ;;
    (program)
      (( $#offered )) && _describe verb offered
      if [[ -n $PREFIX && $PREFIX != */* ]]; then _command_names -e || _files; else _files; fi ;;
    (list) _describe value offered -S '' ;;
    (*) _describe value offered ;;
  esac
}
_horarun "$@"
)";

constexpr std::string_view kFish =
    R"(# fish completion for horarun; put it into ~/.config/fish/completions/horarun.fish
function __horarun_paths
  set -l value (string sub -s (math (string length -- "$argv[2]") + 1) -- "$argv[3]")
  for path in ($argv[1] $value)
    echo -- $argv[2]$path
  end
end
function __horarun_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l reply ($words[1] completion -- $words[2..-1] "$current" 2>/dev/null)
  set -l prefix "$reply[2]"
  switch "$reply[1]"
    case files
      __horarun_paths __fish_complete_path "$prefix" "$current"
    case folders
      __horarun_paths __fish_complete_directories "$prefix" "$current"
    case program 'arguments *'
      set -q reply[3]; and printf '%s\n' $reply[3..-1]
      set -l at (string replace -r '^\D*' '' -- $reply[1])
      test -n "$at"; and set -l before (string escape -- $words[(math $at + 2)..-1])
      set -l offered
      test -n "$before$current"; and set offered (complete -C (string join ' ' -- $before "$current"))
      if set -q offered[1]
        printf '%s\n' $offered
      else
        __fish_complete_path "$current"
      end
    case '*'
      set -q reply[3]; and printf '%s\n' $reply[3..-1]
  end
end
complete -c horarun -e
complete -c horarun -f -a '(__horarun_complete)'
)";

}  // namespace

Result<std::string> completion_script(std::string_view shell) {
  if (shell == "bash") return std::string(kBash);
  if (shell == "zsh") return std::string(kZsh);
  if (shell == "fish") return std::string(kFish);
  return make_error(ErrorCode::kUsage,
                    "completion: expected bash, zsh or fish, found " + quote(shell));
}

}  // namespace hora::launcher
