// SPDX-License-Identifier: Apache-2.0
// Local sockets (unix(7)): their names without a file, and who is at the other end.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

namespace hora::os {

// The address of a socket that has a name but no file: it ends with its last descriptor, and every
// process of the network namespace can see it.
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

// The process and the user that connected, or that listens: by the kernel, so neither can lie.
inline std::optional<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

}  // namespace hora::os
