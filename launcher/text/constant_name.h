// SPDX-License-Identifier: Apache-2.0
// The spelling of variables and of error codes.  [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora::launcher {

// "ssh-auth" becomes "SSH_AUTH". ASCII only.
std::string constant_name(std::string_view text);

}  // namespace hora::launcher
