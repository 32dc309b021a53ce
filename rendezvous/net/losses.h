// SPDX-License-Identifier: Apache-2.0
// Whether packets get lost on the way to the other end of a TCP connection.
#pragma once

namespace hora::net {

// The kernel has sent something again, and it has arrived since. False for other sockets, and while
// the other end is silent: it may be gone.
bool has_outlived_losses(int fd);

}  // namespace hora::net
