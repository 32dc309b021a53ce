// The netlink messages by which a table of nftables comes about that drops what passes between this
// host and another's addresses.  [pure]
#pragma once

#include <cstdint>
#include <string>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

enum class CutTable {
  kTrial,  // takes everything that a cut takes, and drops nothing
  kActive,
};

// One batch, all or nothing. The table belongs to the socket that the batch is sent by: nobody else
// can change it, and the kernel removes it when that socket is closed, by whatever.
// Errors: an address that is none.
Result<std::string> cut_batch(const CutOrder& cut, const std::string& table, CutTable kind);

// The sequence number whose acknowledgement says that the batch was taken.
inline constexpr std::uint32_t kCutBatchAck = 1;

// Reads the kernel's answer: 0, an errno, or -1 if it answers something else.
int batch_answer(const std::string& bytes);

}  // namespace hora::launcher
