// SPDX-License-Identifier: Apache-2.0
// Whether packets get lost on the way to the other end of a TCP connection.
#pragma once

#include <cstdint>

namespace hora::net {

// Packets that a kernel has sent: one in a hundred or more has been sent again. Fewer get lost
// everywhere.
bool is_lossy(std::uint32_t sent, std::uint32_t sent_again);
// So many of this connection's have, and have arrived since. False for other sockets, and while the
// other end is silent: it may be gone.
bool has_outlived_losses(int fd);

}  // namespace hora::net
