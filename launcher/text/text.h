// SPDX-License-Identifier: Apache-2.0
// Names, lists and columns as people read them.  [pure]
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// Names in a message that stays readable with ten thousand of them.

inline constexpr std::size_t kFewNames = 8;

// "a, b, c", or, of more than kFewNames, "a, b, c, d, e, f, g, h and 14 more".
std::string few_names(const std::vector<std::string>& names);

// The columns of tables for people.

// Of at most `most` characters: the end of a longer one gives way to "...". Counts code points of
// UTF-8 and cuts none in two.
std::string shortened(std::string_view text, std::size_t most);

// `text`, or "-" for none, and blanks up to `width` characters: two of them at least, so that a
// long text does not run into the next column.
std::string column(std::string_view text, std::size_t width);

// The spelling of variables and of error codes.

// "ssh-auth" becomes "SSH_AUTH". ASCII only.
std::string constant_name(std::string_view text);
// ASCII only, in any locale.
std::string lower_case(std::string_view text);

// Suggests known names for a mistyped word.

// The words of `known` that are close to `word`, the closest first; for "did you mean".
std::vector<std::string> did_you_mean(std::string_view word, const std::vector<std::string>& known);

// JSON for programs that carry no JSON library.

// `text` as a JSON string, in its quotes. What visible_line() replaces, as control characters, is
// replaced.
std::string json_text(std::string_view text);

// Names of signals.

// "SIGTERM"; "signal 42" when it has no name.
std::string signal_name(int signal);
// The number of "SIGTERM"; none for other texts.
std::optional<int> signal_number(std::string_view name);

// The verbs of horarun, once: completion, the manual page, docs/reference/cli.md and suggestions
// are made from these rows.

struct VerbRow {
  std::string_view name;
  std::string_view arguments;  // as in a synopsis
  std::string_view purpose;
  std::string_view words = {};  // what may follow, separated by blanks; empty: anything
};

std::span<const VerbRow> verbs();
bool is_verb(std::string_view word);
std::vector<std::string> verb_names();

// Versions, compared.

// Below 0, 0, above 0. By numbers, part by part: "2.10" is larger than "2.9". Suffixes such as
// "+cu118" and "-rc1" do not count.
int compare_versions(std::string_view a, std::string_view b);

}  // namespace hora::launcher
