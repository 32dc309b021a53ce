// SPDX-License-Identifier: Apache-2.0
// Owners of what libssh hands out: strings and keys that only its own functions may free.
#pragma once

#include <memory>
#include <type_traits>

#include "launcher/transports/libssh.h"
namespace hora::launcher {

struct FreeSshText {
  void operator()(char* text) const { libssh().ssh_string_free_char(text); }
};
using SshText = std::unique_ptr<char, FreeSshText>;

struct FreeSshKey {
  void operator()(ssh_key key) const { libssh().ssh_key_free(key); }
};
using SshKey = std::unique_ptr<std::remove_pointer_t<ssh_key>, FreeSshKey>;

}  // namespace hora::launcher
