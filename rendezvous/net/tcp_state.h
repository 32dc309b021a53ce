// SPDX-License-Identifier: Apache-2.0
// What the kernel knows of a TCP connection: lost packets and the round-trip time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace hora::net {

// Whether packets get lost on the way to the other end of a TCP connection.

// Packets that a kernel has sent: one in a hundred or more has been sent again. Fewer get lost
// everywhere.
bool is_lossy(std::uint32_t sent, std::uint32_t sent_again);
// This connection had that many, and they have arrived since. False for other sockets, and while
// the other end is silent: it may be gone.
bool has_outlived_losses(int fd);

// How far away the other end of a TCP connection is, without asking it.

// The shortest time that the kernel has seen between what it sent and the answer; nothing where it
// does not say, as for other sockets or before Linux 4.6.
std::optional<std::chrono::microseconds> least_round_trip(int fd);

}  // namespace hora::net
