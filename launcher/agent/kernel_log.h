// SPDX-License-Identifier: Apache-2.0
// The messages of the kernel from the moment on when this object was made, where this process may
// read them (/dev/kmsg); containers and other users than root often may not, which is no error.
// Never waits. One thread at a time.
#pragma once

#include <functional>
#include <string_view>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

class KernelLog {
 public:
  KernelLog();
  // To be watched for EPOLLIN; not valid where the messages cannot be read.
  const os::Fd& fd() const { return fd_; }
  // What has come since the last call, a message each, without the kernel's header. False: nothing
  // more will be read here.
  bool read_new(const std::function<void(std::string_view message)>& take);

 private:
  os::Fd fd_;
};

}  // namespace hora::launcher
