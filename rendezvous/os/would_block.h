// Of a write to a socket that does not block: the kernel has no room for it now. Trying again later
// is right; a stream whose bytes were dropped instead would go on with a hole in it.
#pragma once

#include <cerrno>

namespace hora::os {

inline bool would_block(int errnum) {
  return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == ENOBUFS || errnum == ENOMEM;
}

}  // namespace hora::os
