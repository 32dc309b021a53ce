// SPDX-License-Identifier: Apache-2.0
// What is typed from habit is looked up only after the names that horarun and horovodrun have, so
// no row can take a meaning away. Names that two peers use for different things have the answer of
// both. The unit tests check that each row is reached, and that what it names is an option.
#include "launcher/options/peer_options.h"

#include <algorithm>
#include <iterator>

#include "launcher/options/usage_text.h"

namespace hora::launcher {

namespace {

using enum PeerAnswer;

constexpr PeerOption kPeerOptions[] = {
#include "launcher/options/peer_options.inc"
};

// The name without its dashes: users of mpirun and Hydra write long names with one or two.
constexpr std::string_view bare(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return name;
}

// The look-up is a binary search, so a row in the wrong place would never be found.
static_assert(std::is_sorted(std::begin(kPeerOptions), std::end(kPeerOptions),
                             [](const PeerOption& a, const PeerOption& b) {
                               return bare(a.name) < bare(b.name);
                             }));

}  // namespace

std::span<const PeerOption> peer_options() { return kPeerOptions; }

// "--bind_to" and "-bind-to" are one option: DeepSpeed and accelerate write underscores.
const PeerOption* find_peer_option(std::string_view name) {
  // One letter behind two dashes is no option of anybody.
  if (name.size() == 3 && name.starts_with("--")) return nullptr;
  std::string key(bare(name));
  std::replace(key.begin(), key.end(), '_', '-');
  const auto* const found = std::lower_bound(
      std::begin(kPeerOptions), std::end(kPeerOptions), key,
      [](const PeerOption& option, const std::string& text) { return bare(option.name) < text; });
  return found != std::end(kPeerOptions) && bare(found->name) == key ? found : nullptr;
}

std::string peer_answer_text(const PeerOption& option) {
  const std::string answer(option.answer);
  switch (option.kind) {
    case kNotNeeded:
      return "it is not needed: " + answer;
    case kNotAvailable:
      return "it is not available: " + answer;
    case kCalled:
      break;
  }
  const std::string note(option.note);
  return "horarun calls this " + answer + (note.empty() ? "" : " (" + note + ")");
}

std::string peer_option_reference() {
  std::string out = "| Option | of | horarun |\n|---|---|---|\n";
  for (const PeerOption& option : kPeerOptions) {
    out += "| `" + std::string(option.name) + "` | " + std::string(option.peers) + " | ";
    if (option.kind == kCalled) {
      out += "`" + markdown_cell(option.answer) + "`";
      if (!option.note.empty()) out += "; " + markdown_cell(option.note);
    } else {
      out += option.kind == kNotNeeded ? "not needed: " : "not available: ";
      out += markdown_cell(option.answer);
    }
    out += " |\n";
  }
  return out;
}

}  // namespace hora::launcher
