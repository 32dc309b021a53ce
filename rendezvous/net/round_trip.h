// SPDX-License-Identifier: Apache-2.0
// How far away the other end of a TCP connection is, without asking it.
#pragma once

#include <chrono>
#include <optional>

namespace hora::net {

// The shortest time that the kernel has seen between what it sent and the answer; nothing where it
// does not say, as for other sockets or before Linux 4.6.
std::optional<std::chrono::microseconds> least_round_trip(int fd);

}  // namespace hora::net
