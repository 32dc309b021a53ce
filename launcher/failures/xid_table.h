// SPDX-License-Identifier: Apache-2.0
// What the Xid codes of the NVIDIA driver mean and what to do, after NVIDIA's catalogue
// (https://docs.nvidia.com/deploy/xid-errors/). Those that end or spoil jobs; the others are looked
// up there.  [pure]
#pragma once

#include <span>
#include <string_view>

namespace hora::launcher {

struct XidClass {
  int code;
  std::string_view meaning;
  std::string_view fix;
};

inline constexpr std::string_view kXidCatalogue = "https://docs.nvidia.com/deploy/xid-errors/";

std::span<const XidClass> xid_classes();
// nullptr: not in the table.
const XidClass* find_xid(int code);

}  // namespace hora::launcher
