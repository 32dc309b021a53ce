// SPDX-License-Identifier: Apache-2.0
// Small questions about paths.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::os {

// What stands before the last '/'; the path itself where there is none.
std::string folder_of(std::string_view path);

// Without links, "." and ".."; the path itself if it leads to nothing.
std::string real_path(const std::string& path);

// Follows links.
bool is_folder(const std::string& path);

// 0 where the effective user may execute a file or enter a folder, else an errno.
int check_executable(int directory_fd, const char* path);

// The running program's, without links.
Result<std::string> program_folder();

}  // namespace hora::os
