// SPDX-License-Identifier: Apache-2.0
// The list of libraries that ldconfig makes for glibc's loader: /etc/ld.so.cache.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hora::launcher {

class LoaderCache {
 public:
  // Any bytes are safe to give; those that are no such list name no files.
  explicit LoaderCache(std::string bytes);

  // The files of that name, in the loader's order; of all processors that the machine serves.
  std::vector<std::string> files_of(std::string_view soname) const;

 private:
  std::string_view list() const { return std::string_view(bytes_).substr(begin_); }

  std::string bytes_;
  std::size_t begin_ = 0;  // of the list, in bytes_
  std::size_t count_ = 0;  // of its entries
};

}  // namespace hora::launcher
