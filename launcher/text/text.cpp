// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/text.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <utility>

#include "rendezvous/base/text.h"

namespace hora::launcher {

std::string few_names(const std::vector<std::string>& names) {
  if (names.size() <= kFewNames) return join(names, ", ");
  return join({names.begin(), names.begin() + kFewNames}, ", ") + " and " +
         std::to_string(names.size() - kFewNames) + " more";
}

// Names of hosts, programs and tensors may be in any script. A terminal shows most characters in
// one cell each, and half a character as garbage, so characters count here and not bytes.

namespace {

constexpr std::string_view kLeftOut = "...";

// All bytes of a character but the first are 10xxxxxx.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

// Where character number `index` begins.
std::size_t place_of(std::string_view text, std::size_t index) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && index-- == 0) return at;
  }
  return text.size();
}

}  // namespace

std::string shortened(std::string_view text, std::size_t most) {
  if (characters(text) <= most) return std::string(text);
  const std::size_t kept = most - std::min(most, kLeftOut.size());
  return std::string(text.substr(0, place_of(text, kept))) + std::string(kLeftOut);
}

std::string column(std::string_view text, std::size_t width) {
  std::string out(text.empty() ? "-" : text);
  const std::size_t length = characters(out);
  out.append(std::max(width, length + 2) - length, ' ');
  return out;
}

std::string constant_name(std::string_view text) {
  std::string out(text);
  // Not toupper(), which depends on the locale: these names are the same everywhere.
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (c == '-') c = '_';
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Suggests names for a typo by their edit distance.

namespace {

std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

// Counts the insertions, deletions, replacements and swaps of neighbours that lead from a to b.
// Three rows of the table are enough, because a swap looks back two rows.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::vector<std::string> did_you_mean(std::string_view word,
                                      const std::vector<std::string>& known) {
  const std::string_view bare = without_dashes(word);
  // One mistake per three letters; more would suggest unrelated names.
  const std::size_t limit = std::max<std::size_t>(1, bare.size() / 3);
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(bare, without_dashes(candidate));
    // Replacing every letter does not count as similar.
    if (distance > limit || distance >= bare.size()) continue;
    // Sorted with the dashes, so that "-np" wins over "--np" for "-mp".
    found.emplace_back(edit_distance(word, candidate), candidate);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (auto& [distance, candidate] : found) out.push_back(std::move(candidate));
  return out;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : visible_line(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

namespace {

// glibc has had such a table that programs can ask, sigabbrev_np(), since 2.32 only.
constexpr std::array<std::pair<int, const char*>, 31> kNames{{
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
    {SIGPOLL, "SIGPOLL"}, {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
}};

}  // namespace

std::string signal_name(int signal) {
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return "signal " + std::to_string(signal);
}

std::optional<int> signal_number(std::string_view wanted) {
  for (const auto& [number, name] : kNames) {
    if (wanted == name) return number;
  }
  return std::nullopt;
}

// A new verb has its row here and its parser in launcher/options/command_line.cpp; everything that
// people read follows from the row.

namespace {

constexpr VerbRow kVerbs[] = {
    {"attach", "JOB", "follow the output of a job of --detach"},
    {"bundle-report", "RECORD.json -o OUT.json [options]",
     "collect all that is known about a job in one file"},
    {"cache", "ls|clean [options]", "list or remove the runtimes cached on hosts", "ls clean"},
    {"cancel", "JOB", "end a running job of this machine"},
    {"completion", "bash|zsh|fish", "print a completion script for that shell", "bash zsh fish"},
    {"doctor", "[options]", "check whether hosts can run jobs"},
    {"explain", "[code]", "explain a failure, a finding of doctor, an exit code or a signal",
     "events"},
    {"help", "[verb]", "the same as --help"},
    {"jobs", "[--json]", "list your running jobs on this machine"},
    {"k8s", "[options] program [arguments]", "run a job in Kubernetes pods"},
    {"rendezvous", "[options]", "run a standalone rendezvous server"},
    {"timeline", "merge FILE... -o OUT", "merge the traces of several ranks", "merge"},
    {"top", "[JOB] [options]", "show what the ranks of a running job do, and which delays it"},
    {"version", "", "the same as --version"},
};

}  // namespace

std::span<const VerbRow> verbs() { return kVerbs; }

bool is_verb(std::string_view word) {
  return std::any_of(std::begin(kVerbs), std::end(kVerbs),
                     [word](const VerbRow& row) { return row.name == word; });
}

std::vector<std::string> verb_names() {
  std::vector<std::string> out;
  for (const VerbRow& row : kVerbs) out.emplace_back(row.name);
  return out;
}

int compare_versions(std::string_view a, std::string_view b) {
  const auto left = split(a.substr(0, a.find_first_of("+-")), '.');
  const auto right = split(b.substr(0, b.find_first_of("+-")), '.');
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const auto x = i < left.size() ? parse_int<long>(left[i]).value_or(0) : 0;
    const auto y = i < right.size() ? parse_int<long>(right[i]).value_or(0) : 0;
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

}  // namespace hora::launcher
