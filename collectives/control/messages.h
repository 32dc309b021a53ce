// The first byte of every control message after the handshake.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hora::collectives {

enum class ControlMessage : std::uint8_t {
  // worker to coordinator
  kRequests = 16,  // item_list.h, of requests
  kExchange = 17,  // scope, number, parts: a part of an exchange (oob_allgather.h)
  kBroken = 18,    // text: this rank's data plane failed; the world is unusable
  kFinished = 19,  // everything up to the shutdown response is done here
  kPosted = 20,    // turn: this rank has posted in the fast path, and waits for others
  kFailed = 21,    // text: as kBroken, and it began in this rank
  // coordinator to worker
  kResponses = 32,       // item_list.h, of responses
  kExchangeResult = 33,  // scope, number, parts by set index
  kAbort = 34,           // text: the world has ended
  kClose = 35,           // all ranks are finished: connections may be closed
  kInFull = 36,          // set, number: rank 0 has forgotten what that means; ask again in full
  kCall = 37,            // turn: somebody waits in the fast path; post there
};

// Who sends it, or whom rank 0 tells it, cannot go on.
inline bool ends_the_world(ControlMessage kind) {
  return kind == ControlMessage::kBroken || kind == ControlMessage::kFailed ||
         kind == ControlMessage::kAbort;
}

inline std::string control_message(ControlMessage kind, std::string_view payload = {}) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += payload;
  return bytes;
}

inline ControlMessage kind_of(std::string_view bytes) {
  return bytes.empty() ? ControlMessage{} : static_cast<ControlMessage>(bytes[0]);
}

}  // namespace hora::collectives
