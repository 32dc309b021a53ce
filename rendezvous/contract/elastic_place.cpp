// SPDX-License-Identifier: Apache-2.0
// Everything here is text in a store, so that Horovod's own workers and scripts can read it. The
// parsers reject anything else, since a worker acts on these numbers.
#include "rendezvous/contract/elastic_place.h"

#include <array>

#include "rendezvous/base/text.h"

namespace hora::rendezvous {

std::string place_key(const PlaceQuestion& question) {
  return std::to_string(question.worker) + "." + std::to_string(question.epoch) +
         (question.knows_state ? ".1" : ".0");
}

std::optional<PlaceQuestion> parse_place_key(std::string_view key) {
  const auto parts = split(key, '.');
  // WORKER.EPOCH.STATE
  if (parts.size() != 3) return std::nullopt;
  const auto worker = parse_int<int>(parts[0]);
  const auto epoch = parse_int<int>(parts[1]);
  if (!worker || !epoch || *worker < 0 || (parts[2] != "0" && parts[2] != "1")) return std::nullopt;
  return PlaceQuestion{*worker, *epoch, parts[2] == "1"};
}

std::string host_update_key(int epoch, int number) {
  return "host_update." + std::to_string(epoch) + "." + std::to_string(number);
}

std::string unreached_key(int epoch, int rank) {
  return "unreached." + std::to_string(epoch) + "." + std::to_string(rank);
}

std::string unreached_text(const PeerOfEpoch& peer) {
  return (peer.is_host ? "host " : "rank ") + std::to_string(peer.number);
}

std::optional<Unreached> parse_unreached(std::string_view key, std::string_view text) {
  const auto parts = split(key, '.');
  const auto words = split(text, ' ');
  if (parts.size() != 3 || parts[0] != "unreached" || words.size() != 2) return std::nullopt;
  if (words[0] != "host" && words[0] != "rank") return std::nullopt;
  const auto epoch = parse_int<int>(parts[1]);
  const auto rank = parse_int<int>(parts[2]);
  const auto number = parse_int<int>(words[1]);
  if (!epoch || !rank || !number || *epoch < 0 || *rank < 0 || *number < 0) return std::nullopt;
  return Unreached{*epoch, *rank, {words[0] == "host", *number}};
}

std::string void_key(std::string_view epoch) { return "void." + std::string(epoch); }

std::string slot_text(const RankPlace& place) {
  std::string text;
  for (const int number : {place.rank, place.size, place.local_rank, place.local_size,
                           place.cross_rank, place.cross_size}) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
}

std::string no_slot_text() { return "-1,-1,-1,-1,-1,-1"; }

std::string encode_elastic_place(const ElasticPlace& place) {
  return slot_text(place.rank) + "," + std::to_string(place.epoch) + "," + place.interface;
}

Result<std::optional<ElasticPlace>> decode_elastic_place(std::string_view text) {
  // Compared as a whole: six times -1 is not a place with a negative rank.
  if (text == no_slot_text()) return std::optional<ElasticPlace>();
  const auto parts = split(text, ',');
  std::array<int, 7> numbers{};
  // Seven numbers and the interface.
  bool is_good = parts.size() == 8;
  for (std::size_t i = 0; i < numbers.size() && is_good; ++i) {
    const auto number = parse_int<int>(parts[i]);
    is_good = number && *number >= 0;
    if (is_good) numbers[i] = *number;
  }
  if (!is_good) return make_error(ErrorCode::kFailed, "no place in an epoch: " + quote(text));
  ElasticPlace place;
  // hostname and host_index do not travel; the worker knows them already.
  place.rank = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], 0, {}};
  place.epoch = numbers[6];
  place.interface = parts[7];
  return std::optional<ElasticPlace>(std::move(place));
}

}  // namespace hora::rendezvous
