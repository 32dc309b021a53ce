// SPDX-License-Identifier: Apache-2.0
// The requests of an elastic worker with Hora's runtime to the launcher, through the store.
// [pure]
//
//   GET hora_elastic/WORKER.EPOCH.STATE
//       waits for the worker's place in the epoch after EPOCH, and thereby says that EPOCH is over
//       for it; STATE: 1 when it knows the state of the training, otherwise 0
//   GET hora_elastic/void.EPOCH
//       asks whether that epoch is already over
//   GET hora_elastic/host_update.EPOCH.NUMBER
//       waits for the NUMBER-th change in that epoch: "1" hosts have gone, "2" have come, "3" both
//   PUT hora_elastic/unreached.EPOCH.RANK
//       says, before that rank asks for its next place, what it could not connect to: "rank 3", or
//       the first rank of "host 2"
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::rendezvous {

struct PlaceQuestion {
  int worker = 0;
  int epoch = 0;  // the epoch that it was in
  bool knows_state = false;
  friend bool operator==(const PlaceQuestion&, const PlaceQuestion&) = default;
};
std::string place_key(const PlaceQuestion& question);
std::optional<PlaceQuestion> parse_place_key(std::string_view key);

std::string host_update_key(int epoch, int number);

// A rank of an epoch, or the first rank of the host with that number.
struct PeerOfEpoch {
  bool is_host = false;
  int number = 0;
  friend bool operator==(const PeerOfEpoch&, const PeerOfEpoch&) = default;
};
struct Unreached {
  int epoch = 0;
  int rank = 0;  // that says so
  PeerOfEpoch peer;
  friend bool operator==(const Unreached&, const Unreached&) = default;
};
std::string unreached_key(int epoch, int rank);
std::string unreached_text(const PeerOfEpoch& peer);
std::optional<Unreached> parse_unreached(std::string_view key, std::string_view text);

// This key exists once the epoch has lost a rank or a rank has left it: a worker that has not met
// the others by then never will.
std::string void_key(std::string_view epoch);
// The launcher writes this instead of rank 0's address then.
inline constexpr std::string_view kVoidEpoch = "void";

// "rank,size,local_rank,local_size,cross_rank,cross_size", which is all that Horovod's workers
// learn; six times -1 for a worker that is no longer needed.
std::string slot_text(const RankPlace& place);
std::string no_slot_text();

struct ElasticPlace {
  RankPlace rank;  // hostname and host_index do not travel
  int epoch = 0;
  std::string interface;  // of this host, for the traffic between hosts; may be empty
};
// slot_text(), then two further fields.
std::string encode_elastic_place(const ElasticPlace& place);
// Nothing: the worker is no longer needed. An Error: the text is malformed.
Result<std::optional<ElasticPlace>> decode_elastic_place(std::string_view text);

}  // namespace hora::rendezvous
