// SPDX-License-Identifier: Apache-2.0
// The tree of ranks that relays control messages, and its frames.  [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectives/negotiation/wire.h"

namespace hora::collectives {

// How the leaders of the hosts form a tree in a large job: hosts count from 0, and each has at most
// kTreeFan - 1 others directly below it for each power of kTreeFan. Host 0 is the root.

inline constexpr int kTreeFan = 32;

// The host above: the lowest digit to the base kTreeFan that is not 0 becomes 0.
constexpr int host_above(int host) {
  int unit = 1;
  while (host != 0 && host / unit % kTreeFan == 0) unit *= kTreeFan;
  return host - host / unit % kTreeFan * unit;
}

// Whether others go by the leader of this host.
constexpr bool has_hosts_below(int host, int hosts) {
  return host % kTreeFan == 0 && host + 1 < hosts;
}

// What tree nodes send each other: the messages of many ranks on one connection.
// Towards rank 0 a message is a list of words: of which ranks, what happened, which bytes. Ranks
// that say the same share one word. From rank 0 it is one text and its receivers.

using Ranks = std::vector<std::int32_t>;  // ascending

// As runs: consecutive ranks take two or three bytes.
void write_ranks(WireWriter& out, const Ranks& ranks);
// Fails for ranks that are not below `end`.
Ranks read_ranks(WireReader& in, std::int32_t end);

// Towards rank 0.
struct Word {
  enum Kind : std::uint8_t {
    kSaid = 1,    // a control message of each of these ranks
    kGone = 2,    // their connection has ended; the text says how
    kJoined = 3,  // one rank has proved itself; the text is its rank info
    kCutOff = 4,  // as kGone, but only since the node by which they went has gone
  };
  Kind kind = kSaid;
  Ranks ranks;
  std::string text;

  friend bool operator==(const Word&, const Word&) = default;
};

// Nothing when the message is malformed, or names a rank that is not below `size`.
std::optional<std::vector<Word>> decode_words(std::string_view message, std::int32_t size);

// Collects words and merges equal ones. The messages of a rank stay in order.
class WordCollector {
 public:
  void add(Word word);
  bool empty() const { return words_.empty(); }
  // All of them as one message.
  std::string take();

 private:
  std::vector<Word> words_;
  // By their text: the last word of those that say it.
  std::unordered_map<std::string, std::size_t> said_;
  std::unordered_map<std::int32_t, std::size_t> last_of_;  // by rank: its last word
};

// From rank 0.
struct Passage {
  bool to_all = false;  // to all ranks of this connection
  Ranks ranks;          // otherwise to these
  std::string_view text;
};
std::string passage_to_all(std::string_view text);
std::string passage_to(const Ranks& ranks, std::string_view text);
// The text points into `message`.
std::optional<Passage> decode_passage(std::string_view message, std::int32_t size);

}  // namespace hora::collectives
