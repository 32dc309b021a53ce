// SPDX-License-Identifier: Apache-2.0
// A message of the NVIDIA driver about a GPU in the kernel's log:
//   NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008, intr 10000000. MMU Fault
//   ...
// [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hora::launcher {

struct XidMessage {
  std::string device;  // "0000:3b:00"; of a part of one "0000:3b:00 GPU-I:05"
  int code = 0;
  std::int64_t pid = 0;  // as the kernel counts; 0: the driver does not know it
  std::string program;   // of that process; may be empty
  std::string text;      // the rest
  friend bool operator==(const XidMessage&, const XidMessage&) = default;
};

// Returns nothing if the line is not from this driver.
std::optional<XidMessage> parse_xid(std::string_view line);

}  // namespace hora::launcher
