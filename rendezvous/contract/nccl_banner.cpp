// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/contract/nccl_banner.h"

#include <charconv>

namespace hora {

namespace {

constexpr std::string_view kBanner = "NCCL version ";
constexpr std::string_view kCuda = "+cuda";
// Far more than any version needs; what follows in memory is other text.
constexpr std::size_t kLongest = 64;

// "2.28.9+cuda13.0", and whatever follows it.
int read_cuda(std::string_view text) {
  text = text.substr(0, text.find('\0'));
  const std::size_t at = text.find(kCuda);
  if (at == std::string_view::npos) return 0;
  const char* const end = text.data() + text.size();
  int major = 0;
  int minor = 0;
  const char* const dot = std::from_chars(text.data() + at + kCuda.size(), end, major).ptr;
  if (dot == end || *dot != '.') return 0;
  const bool good = std::from_chars(dot + 1, end, minor).ec == std::errc();
  return good && major < 1000 && minor < 100 ? major * 1000 + minor * 10 : 0;
}

}  // namespace

// Messages begin like the banner, too.
int cuda_of_nccl(std::string_view memory) {
  for (std::size_t at = memory.find(kBanner); at != std::string_view::npos;
       at = memory.find(kBanner, at + 1)) {
    const int cuda = read_cuda(memory.substr(at + kBanner.size(), kLongest));
    if (cuda != 0) return cuda;
  }
  return 0;
}

}  // namespace hora
