// What an elastic worker of ours and the launcher tell each other by way of the store.  [pure]
//
//   GET hora_elastic/WORKER.EPOCH.STATE   waits for the worker's place in the epoch after EPOCH,
//   and
//                                         tells by that that EPOCH is over for it; STATE: 1, it
//                                         knows the state of the training, or 0
//   GET hora_elastic/void.EPOCH           whether that epoch is over already
//   GET hora_elastic/host_update.EPOCH.NUMBER    waits for the NUMBER-th news in that epoch: "1"
//   hosts have
//                                         gone, "2" have come, "3" both
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::rendezvous {

struct PlaceQuestion {
  int worker = 0;
  int epoch = 0;  // that it was in
  bool knows_state = false;
  friend bool operator==(const PlaceQuestion&, const PlaceQuestion&) = default;
};
std::string place_key(const PlaceQuestion& question);
std::optional<PlaceQuestion> parse_place_key(std::string_view key);

std::string host_update_key(int epoch, int number);

// Is there once a rank of the epoch was lost or has left it: whoever has not met yet never will.
std::string void_key(std::string_view epoch);
// What the launcher puts where rank 0 would have told where it is.
inline constexpr std::string_view kVoidEpoch = "void";

// "rank,size,local_rank,local_size,cross_rank,cross_size", which is all that Horovod's workers are
// told; six times -1 to one that is no longer needed.
std::string slot_text(const RankPlace& place);
std::string no_slot_text();

struct ElasticPlace {
  RankPlace rank;  // hostname and host_index do not travel
  int epoch = 0;
  std::string interface;  // of this host, for the traffic between hosts; may be empty
};
// slot_text() and two further fields.
std::string encode_elastic_place(const ElasticPlace& place);
// Nothing: no longer needed. The Error is text that is none of these.
Result<std::optional<ElasticPlace>> decode_elastic_place(std::string_view text);

}  // namespace hora::rendezvous
