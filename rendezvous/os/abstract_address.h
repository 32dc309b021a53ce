// SPDX-License-Identifier: Apache-2.0
// The address of a local socket that has a name but no file (unix(7)): it ends with its last
// descriptor, and every process of the network namespace can see it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace hora::os {

class AbstractAddress {
 public:
  // Takes the first 107 bytes of a longer name.
  explicit AbstractAddress(std::string_view name) {
    const std::size_t length = std::min(name.size(), sizeof address_.sun_path - 1);
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path + 1, name.data(), length);
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_un address_{};
  socklen_t size_ = 0;
};

}  // namespace hora::os
