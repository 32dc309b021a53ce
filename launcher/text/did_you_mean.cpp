// SPDX-License-Identifier: Apache-2.0
// Suggests names for a typo by their edit distance.
#include "launcher/text/did_you_mean.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace hora::launcher {

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
    // Replacing every letter is no similarity.
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

}  // namespace hora::launcher
