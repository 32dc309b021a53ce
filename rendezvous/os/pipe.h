// SPDX-License-Identifier: Apache-2.0
// A pipe with one owner; child processes do not inherit it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "rendezvous/os/fd.h"

namespace hora::os {

struct Pipe {
  Fd read_end, write_end;

  // `flags`: O_NONBLOCK or 0, for both ends. False: errno says why.
  bool open(int flags = 0) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | flags) != 0) return false;
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
    return true;
  }
};

}  // namespace hora::os
