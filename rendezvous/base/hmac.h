// A keyed digest: whoever can make it holds the key.  [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora {

// 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);

}  // namespace hora
