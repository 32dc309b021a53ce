// SPDX-License-Identifier: Apache-2.0
// What is typed from habit is looked up only after the names that horarun and horovodrun have, so
// no row can take a meaning away. Names that two peers use for different things have the answer of
// both. The unit tests check that each row is reached, and that what it names is an option.
#include "launcher/options/peer_options.h"

#include <algorithm>
#include <iterator>

#include "launcher/options/usage_text.h"
#include "rendezvous/base/text.h"

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

namespace {

// Open MPI's --map-by says in which order ranks get cores, Hydra's also where; here hosts are
// filled slot by slot or in turn, and --bind says which cores a rank gets. So both of theirs have
// their answer in --bind. What srun --mpi names is the protocol that the ranks start by: that is
// --pmi.
struct PeerValue {
  std::string_view option;
  std::string_view value;  // without qualifiers
  std::string_view answer;
};

constexpr PeerValue kPeerValues[] = {
    {"--bind", "board", "--bind numa"},
    {"--bind", "hwthread", "--bind core, which gives a rank whole cores"},
    {"--bind", "l1cache", "--bind core"},
    {"--bind", "l2cache", "--bind core"},
    {"--bind", "l3cache", "--bind l3"},
    {"--bind", "package", "--bind socket"},
    {"--map-by", "board", "--bind numa"},
    {"--map-by", "core", "--bind core"},
    {"--map-by", "hwthread", "--bind core"},
    {"--map-by", "l1cache", "--bind core"},
    {"--map-by", "l2cache", "--bind core"},
    {"--map-by", "l3cache", "--bind l3"},
    {"--map-by", "numa", "--bind numa"},
    {"--map-by", "package", "--bind socket"},
    {"--map-by", "socket", "--bind socket"},
    {"--mpi", "none", "to leave --mpi out"},
    {"--mpi", "pmi2", "--pmi pmi1"},
    {"--mpi", "pmix", "--pmi pmix"},
    {"--mpi", "pmix_v3", "--pmi pmix"},
    {"--mpi", "pmix_v4", "--pmi pmix"},
    {"--mpi", "pmix_v5", "--pmi pmix"},
};

// "ppr:2:node" is N ranks for each of something. -N counts by host, so for anything smaller the
// user has to multiply: how many sockets a host has is not known here.
std::string ranks_for_each(std::string_view text) {
  const auto words = split(text, ':');
  if (words.size() < 3) return {};
  std::string counted = "-N " + std::string(words[1]);
  if (words[2] == "node") return counted;
  return counted + " with the ranks of a whole host, and --bind " +
         (words[2].starts_with("l3") ? "l3" : std::string(words[2]));
}

}  // namespace

std::string peer_value_answer(std::string_view option, std::string_view value) {
  const std::string_view word = value.substr(0, value.find(':'));
  std::string answer;
  if (option == "--map-by" && word == "ppr") {
    answer = ranks_for_each(value);
  } else if (option == "--map-by" && (word == "slot" || word == "node")) {
    // Qualifiers, such as slot:PE=4 and node:OVERSUBSCRIBE.
    answer = "--map-by " + std::string(word);
    answer +=
        value.find("PE=") != std::string_view::npos || value.find("pe=") != std::string_view::npos
            ? " --bind core, which shares the cores of a host among its ranks"
            : "; slots may be more than cores";
  } else {
    const auto* const found = std::find_if(
        std::begin(kPeerValues), std::end(kPeerValues),
        [&](const PeerValue& row) { return row.option == option && row.value == word; });
    if (found != std::end(kPeerValues)) answer = found->answer;
  }
  return answer.empty() ? "" : "; horarun calls this " + answer;
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
