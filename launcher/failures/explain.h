// SPDX-License-Identifier: Apache-2.0
// `horarun explain`: failure classes, findings of horarun doctor, exit codes, signals and Xid codes
// of GPUs.  [pure]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// The findings of horarun doctor by their codes: what horarun explain says about them.

struct FindingClass {
  std::string_view code;  // "D_SHM"
  std::string_view meaning;
  std::string_view fix;
};

std::span<const FindingClass> finding_classes();

// What the Xid codes of the NVIDIA driver mean and what to do, after NVIDIA's catalogue
// (https://docs.nvidia.com/deploy/xid-errors/). Those that end or spoil jobs; the others are looked
// up there.

struct XidClass {
  int code;
  std::string_view meaning;
  std::string_view fix;
};

inline constexpr std::string_view kXidCatalogue = "https://docs.nvidia.com/deploy/xid-errors/";

std::span<const XidClass> xid_classes();
// nullptr: not in the table.
const XidClass* find_xid(int code);

// `horarun explain`: what is known of a failure class, a finding of horarun doctor, an exit code, a
// signal or a GPU fault.

// Of "E_SSH_AUTH", also "ssh-auth"; "D_SHM"; "125"; "SIGKILL"; "xid79". An empty word gives the
// list of exit codes and classes. A kUsage error names a word that is close.
Result<std::string> explain(std::string_view word);

// The words that have an explanation, in their first spelling. Of exit codes, those of horarun.
std::vector<std::string> explained_words();

}  // namespace hora::launcher
