// SPDX-License-Identifier: Apache-2.0
// For a write to a non-blocking socket: whether the kernel has no room for it now. The caller has
// to try again later; a stream that dropped the bytes instead would have a gap.
#pragma once

#include <cerrno>

namespace hora::os {

inline bool would_block(int errnum) {
  return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == ENOBUFS || errnum == ENOMEM;
}

}  // namespace hora::os
