// SPDX-License-Identifier: Apache-2.0
// The functions of a LauncherBootstrap for those who exchange texts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/launcher_bootstrap.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

class TextAllgather {
 public:
  virtual ~TextAllgather() = default;
  virtual int rank() const = 0;
  // This rank's text to all others, and theirs, by rank.
  virtual Result<std::vector<std::string>> allgather(std::string_view mine, Deadline deadline) = 0;

  // As in LauncherBootstrap. Notes are zero-terminated text in a fixed size; what travels is the
  // text alone.
  bool gather_notes(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
                    ErrorText& error) noexcept;
  bool find_place(LauncherPlace* place, std::chrono::milliseconds patience,
                  ErrorText& error) noexcept;
};

}  // namespace hora::collectives
