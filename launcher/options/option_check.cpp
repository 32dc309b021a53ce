// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_check.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <CLI/CLI.hpp>

#include "launcher/options/other_launchers.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// Splits the command line into options and the program. The program starts at the first word that
// is not an option; everything after it belongs to the program, whatever it looks like.

namespace {

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

// Jobs come first: what they have in common with a verb is theirs.
constexpr std::pair<Verb, std::string_view> kVerbWords[] = {
    {kVerbLaunch, ""},           {kVerbDoctor, "doctor"},
    {kVerbCache, "cache clean"}, {kVerbRendezvous, "rendezvous"},
    {kVerbKubernetes, "k8s"},    {kVerbJobs, "jobs"},
};

// An option of exactly this name, of any launcher.
const OptionRow* find_elsewhere(std::string_view name, std::string_view& home) {
  for (const auto& [verb, word] : kVerbWords) {
    home = word;
    const OptionRow* row = find_option(name, verb);
    if (row != nullptr && !row->has(kHidden)) return row;
  }
  return nullptr;
}

bool is_elsewhere(std::string_view name) {
  std::string_view home;
  return find_elsewhere(name, home) != nullptr;
}

// A valid option of another verb needs another hint than a typo. Empty: there is none.
std::string misplaced_option(std::string_view name, Verb verb) {
  std::string_view home;
  const OptionRow* row = find_elsewhere(name, home);
  if (row == nullptr) return {};
  if (!home.empty()) {
    return "unknown option " + quote(name) + " here; it belongs to 'horarun " + std::string(home) +
           "'";
  }
  const std::string what = "unknown option " + quote(name) + "; it is an option of jobs";
  switch (verb) {
    case kVerbDoctor:
      return what + ", and horarun doctor takes the hosts alone";
    case kVerbCache:
      return what + ", and horarun cache takes the hosts alone";
    case kVerbJobs:
      return what + ", which horarun jobs, top, attach and cancel do not take";
    case kVerbKubernetes:
      return what + " on hosts, and horarun k8s makes pods for the job: --workers N";
    default:
      return what + ", not of horarun rendezvous";
  }
}

// A verb with dashes, and how other programs ask for help. Empty: neither.
std::string verb_answer(std::string_view name) {
  if (name == "-?") return "; did you mean --help?";
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return is_verb(name) ? "; did you mean 'horarun " + std::string(name) + "'?" : "";
}

// Names of a few letters are close to something unrelated.
std::string misspelt_peer_option(std::string_view name, Verb verb) {
  constexpr std::size_t kShort = 6;  // with two dashes
  if (verb != kVerbLaunch || name.size() <= kShort) return {};
  std::vector<std::string> known;
  for (const PeerOption& option : peer_options()) known.emplace_back(option.name);
  const auto close = did_you_mean(name, known);
  if (close.empty()) return {};
  return "; did you mean " + close.front() + "? " +
         peer_answer_text(*find_peer_option(close.front()));
}

Error unknown_option(std::string_view name, Verb verb) {
  if (std::string misplaced = misplaced_option(name, verb); !misplaced.empty()) {
    return usage(std::move(misplaced));
  }
  std::vector<std::string> known;
  for (const OptionRow& row : option_table()) {
    if ((row.verbs & verb) == 0 || row.has(kHidden)) continue;
    for (const std::string_view candidate : names_of(row)) known.emplace_back(candidate);
  }
  std::string message = "unknown option " + quote(name);
  if (const std::string answer = verb_answer(name); !answer.empty()) return usage(message + answer);
  const auto close = did_you_mean(name, known);
  message +=
      close.empty() ? misspelt_peer_option(name, verb) : "; did you mean " + close.front() + "?";
  return usage(std::move(message));
}

Error ambiguous_option(std::string_view name, const std::vector<const OptionRow*>& rows) {
  std::string message = std::string(name) + " is ambiguous; it could be ";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) message += i + 1 == rows.size() ? " or " : ", ";
    message += long_name(*rows[i]);
  }
  return usage(std::move(message));
}

// Returns the rows with a long name that begins with `start`. Our own options yield to
// horovodrun's, so an abbreviation that was unambiguous there stays so.
std::vector<const OptionRow*> find_abbreviated(std::string_view start, Verb verb) {
  std::vector<const OptionRow*> all;
  std::vector<const OptionRow*> theirs;
  for (const OptionRow& row : option_table()) {
    if ((row.verbs & verb) == 0) continue;
    const auto names = names_of(row);
    if (std::none_of(names.begin(), names.end(),
                     [start](std::string_view name) { return starts_with(name, start); })) {
      continue;
    }
    all.push_back(&row);
    if (!row.has(kOurs)) theirs.push_back(&row);
  }
  return theirs.size() == 1 ? theirs : all;
}

struct Word {
  const OptionRow* row = nullptr;
  std::string typed;
  std::optional<std::string> value;  // after '=' or glued to a short name
  bool is_abbreviated = false;
};

// `next` is the word behind it. One such as --verbose is also an option of mpirun and srun.
std::string needs_a_value(const Word& word, const std::string& next = {}) {
  const std::string name = word.is_abbreviated ? std::string(long_name(*word.row)) : word.typed;
  const bool may_be_meant = word.row->metavar == "ARGS" && starts_with(next, "-") && next != "--";
  return word.typed + " needs a value: " + name +
         (may_be_meant ? "=" + quote_shell_words({next}) : " " + std::string(word.row->metavar));
}

// Short options may be glued to their values: "-p2222", "-Ha:4", "-np4".
std::optional<Word> read_glued(const std::string& word, Verb verb) {
  // "-np" comes before "-n" and "-p", because both are its prefixes or look like it.
  for (const std::string_view name : {"-np", "-n", "-N", "-p", "-i", "-H"}) {
    if (!starts_with(word, name)) continue;
    const std::string rest = word.substr(name.size());
    const bool is_number = !rest.empty() && rest[0] >= '0' && rest[0] <= '9';
    // "-n" glued to a letter would swallow single-dash options and typos.
    if ((name[1] == 'n' || name[1] == 'N') && !is_number) continue;
    if (const OptionRow* row = find_option(name, verb)) return Word{row, std::string(name), rest};
  }
  return std::nullopt;
}

// torchrun, DeepSpeed and accelerate take --nproc_per_node and --nproc-per-node alike.
std::string with_dashes(std::string name) {
  if (starts_with(name, "--")) std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// mpirun and Hydra write long names with one dash, too. Where Hydra's name means something else
// than ours with two dashes (-env NAME VALUE), the table of the peers has it, and this finds
// nothing.
const OptionRow* find_with_one_dash(const std::string& name, Verb verb) {
  if (name.size() <= 2 || starts_with(name, "--")) return nullptr;
  const PeerOption* const peer = find_peer_option(name);
  return peer != nullptr && peer->name == name ? nullptr : find_option("-" + name, verb);
}

// An exact name wins over an abbreviation, one of horovodrun's over another launcher's option, and
// that one over an abbreviation of ours: a whole name means that option, also where it is another
// verb's.
Result<Word> read_word(const std::string& word, Verb verb) {
  Word out;
  const std::size_t equals = word.find('=');
  out.typed = word.substr(0, equals);
  if (equals != std::string::npos) out.value = word.substr(equals + 1);
  const std::string name = with_dashes(out.typed);
  out.row = find_option(name, verb);
  if (out.row == nullptr) out.row = find_with_one_dash(name, verb);
  if (out.row != nullptr) return out;
  const bool is_long = starts_with(word, "--");
  const bool may_be_short = is_long && !is_elsewhere(name);
  const auto rows = may_be_short ? find_abbreviated(name, verb) : std::vector<const OptionRow*>{};
  const bool is_certain = rows.size() == 1 && !rows.front()->has(kOurs);
  const PeerOption* const peer =
      verb == kVerbLaunch && !is_certain ? find_peer_option(name) : nullptr;
  if (peer != nullptr) {
    return usage("unknown option " + quote(out.typed) + "; " + peer_answer_text(*peer));
  }
  if (rows.size() > 1) return ambiguous_option(out.typed, rows);
  if (rows.size() == 1) {
    out.row = rows.front();
    out.typed += " (short for " + std::string(long_name(*out.row)) + ")";
    out.is_abbreviated = true;
  }
  if (!is_long) {
    if (auto glued = read_glued(word, verb)) return *glued;
  }
  if (out.row == nullptr) return unknown_option(out.typed, verb);
  return out;
}

Status check_value_presence(const Word& word) {
  const OptionRow& row = *word.row;
  const bool is_help = shown_name(row) == "-h";
  // Only --help has an optional value.
  if (!row.takes_value() && word.value && !(is_help && *word.value == "all")) {
    const std::string habit = peer_value_answer(long_name(row), *word.value);
    return usage(word.typed + " takes no value, found " + quote(*word.value) + habit);
  }
  if (row.takes_value() && word.value && word.value->empty()) {
    return usage(needs_a_value(word));
  }
  return Ok{};
}

// If the value of an option was forgotten, the name of the program is read as the value, and the
// program's own options seem to be ours: `--pmi python3 -c ...`.
Status check_last_value(const Spelled& spelled) {
  if (spelled.options.empty() || !spelled.options.back().value) return Ok{};
  const SpelledOption& last = spelled.options.back();
  const std::string problem = check_option_value(*last.row, *last.value);
  return problem.empty() ? Status(Ok{}) : usage(last.typed + ": " + problem);
}

}  // namespace

Result<Spelled> read_spelling(const std::vector<std::string>& arguments, Verb verb) {
  Spelled spelled;
  std::size_t at = 0;
  while (at < arguments.size()) {
    const std::string& argument = arguments[at];
    if (argument == "--") {
      spelled.after_dashes = true;
      ++at;
      break;
    }
    // A lone "-" is an argument, not an option.
    if (argument.size() < 2 || argument[0] != '-') break;
    auto word = read_word(argument, verb);
    if (!word) {
      HORA_TRY(check_last_value(spelled));
      return std::move(word).error();
    }
    HORA_TRY(check_value_presence(*word));
    ++at;
    if (word->row->takes_value() && !word->value) {
      // Another option in place of the value means that the value was forgotten; a value such as -1
      // is still possible.
      const bool has_next = at < arguments.size() && !arguments[at].empty() &&
                            arguments[at] != "--" && find_option(arguments[at], verb) == nullptr;
      if (!has_next) {
        return usage(needs_a_value(*word, at < arguments.size() ? arguments[at] : ""));
      }
      word->value = arguments[at++];
      // A pair may be two words, or one word with a blank ("1 60").
      const bool has_second = at < arguments.size() && find_option(arguments[at], verb) == nullptr;
      if (word->row->kind == ValueKind::kCountPair && has_second &&
          word->value->find(' ') == std::string::npos) {
        *word->value += " " + arguments[at++];
      }
    }
    spelled.options.push_back({word->row, std::move(word->typed), std::move(word->value)});
  }
  spelled.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return spelled;
}

// CLI11 checks values and exclusions; spelling and messages are our own.

namespace {

// A CLI::App with only the options that were given, since creating all of them would take longer
// than the rest of the start. The message of the first bad value is kept in our own words.
class Checker {
 public:
  Checker(const Spelled& spelled, Verb verb) : spelled_(spelled), verb_(verb) {
    app_.set_help_flag();
    for (const SpelledOption& option : spelled.options) {
      if (options_.count(option.row) == 0) add(*option.row);
    }
    exclude_rivals();
  }

  Result<OptionValues> run() {
    // CLI11 expects the words in reverse order.
    std::vector<std::string> words;
    for (auto option = spelled_.options.rbegin(); option != spelled_.options.rend(); ++option) {
      std::string word(long_name(*option->row));
      // One word per option, so a value that begins with '-' cannot be mistaken for an option.
      if (option->row->takes_value()) word += "=" + option->value.value_or("");
      words.push_back(std::move(word));
    }
    try {
      app_.parse(words);
    } catch (const CLI::ExcludesError&) {
      return make_error(ErrorCode::kUsage, rivals_text());
    } catch (const CLI::Error& error) {
      return make_error(ErrorCode::kUsage, problem_.empty() ? error.what() : problem_);
    }
    HORA_TRY(check_repeated());
    return values();
  }

 private:
  void add(const OptionRow& row) {
    const std::string name(long_name(row));
    if (!row.takes_value()) {
      options_[&row] = app_.add_flag(name);
      return;
    }
    CLI::Option* option = app_.add_option(name, [](const CLI::results_t&) { return true; });
    option->take_all();
    option->check(CLI::Validator(
        [this, &row](std::string& value) {
          std::string problem = check_option_value(row, value);
          // CLI11 wraps the validator's text, so the original is kept.
          if (!problem.empty() && problem_.empty()) problem_ = typed_name(row) + ": " + problem;
          return problem;
        },
        ""));
    options_[&row] = option;
  }

  void exclude_rivals() {
    for (const auto& [row, option] : options_) {
      for (const auto& [rival, other] : options_) {
        // Pointers give each pair an order, so it is registered once.
        if (row < rival && !row->excludes.empty() && row->excludes == rival->excludes) {
          option->excludes(other);
        }
      }
    }
  }

  // Names the options as the user typed them.
  std::string rivals_text() const {
    for (const SpelledOption& a : spelled_.options) {
      for (const SpelledOption& b : spelled_.options) {
        if (a.row != b.row && !a.row->excludes.empty() && a.row->excludes == b.row->excludes) {
          return a.typed + " and " + b.typed + " cannot be used together";
        }
      }
    }
    return "two options cannot be used together";
  }

  // Whichever of two values won, the user who meant the other one would not notice.
  Status check_repeated() const {
    std::map<const OptionRow*, const SpelledOption*> seen;
    for (const SpelledOption& option : spelled_.options) {
      if (!option.value || option.row->has(kRepeats)) continue;
      const SpelledOption& first = *seen.try_emplace(option.row, &option).first->second;
      if (first.value == option.value) continue;
      // What machines join by is a secret.
      const bool is_shown = long_name(*option.row) != "--join";
      const auto shown = [is_shown](const SpelledOption& one) {
        return one.typed + (is_shown ? " " + *one.value : "");
      };
      return make_error(ErrorCode::kUsage, shown(first) + " and " + shown(option) +
                                               " contradict each other; give one of them");
    }
    return Ok{};
  }

  std::string typed_name(const OptionRow& row) const {
    for (const SpelledOption& option : spelled_.options) {
      if (option.row == &row) return option.typed;
    }
    return std::string(shown_name(row));
  }

  OptionValues values() const {
    OptionValues values(verb_);
    for (const SpelledOption& option : spelled_.options) {
      values.add(option.row, option.value.value_or(""));
    }
    return values;
  }

  const Spelled& spelled_;
  Verb verb_;
  CLI::App app_;
  std::map<const OptionRow*, CLI::Option*> options_;
  std::string problem_;
};

}  // namespace

// An option that was not given has no values. Few are given, so they are looked through.
const std::vector<std::string>& OptionValues::all(std::string_view name) const {
  static const std::vector<std::string> none;
  for (const auto& [row, values] : values_) {
    if ((row->verbs & verb_) != 0 && has_name(*row, name)) return values;
  }
  return none;
}

std::string OptionValues::text(std::string_view name, std::string_view otherwise) const {
  const auto& values = all(name);
  return values.empty() ? std::string(otherwise) : values.back();
}

std::string OptionValues::joined(std::string_view name, std::string_view separator) const {
  return join(all(name), separator);
}

std::optional<int> OptionValues::count(std::string_view name) const {
  const auto& values = all(name);
  return values.empty() ? std::nullopt : parse_int<int>(values.back());
}

Result<OptionValues> check_options(const Spelled& spelled, Verb verb) {
  return Checker(spelled, verb).run();
}

}  // namespace hora::launcher
