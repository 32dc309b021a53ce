// SPDX-License-Identifier: Apache-2.0
// Where a command's program is: the PATH search, done before the process exists so that a missing
// program is one clear answer. Takes as long as the file system does; any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct ProgramSearch {
  std::string path;  // empty: there is none that can be executed
  int errnum = 0;    // why not; 0: PATH has no file of that name
};

// The path to execute for `name`, relative to `directory_fd` unless absolute. A name with a slash
// is taken as it is.
ProgramSearch search_program(std::string_view name, std::string_view path_variable,
                             int directory_fd);
// Whether the errno of a search says that there is no such file, rather than one that cannot be
// executed.
bool is_missing(int errnum);

// The same with the failure as an Error: kNotFound, or kDenied for a file that cannot be executed.
Result<std::string> find_program(std::string_view name, std::string_view path_variable,
                                 int directory_fd);

// True when the file at `path` is a script without "#!", which shells run by /bin/sh.
bool is_plain_script(const std::string& path, int directory_fd);

// The interpreter line of a script, after "#!", as far as the kernel reads it; nothing when the
// file at `path` does not begin with "#!", empty when that line is empty or has no end there.
std::optional<std::string> named_interpreter(const std::string& path, int directory_fd);

// Why a script may not run: lines that end in a carriage return, as those of Windows files, in the
// program or in a file among its arguments. Begins with "; "; empty: there are none.
std::string carriage_return_note(const std::vector<std::string>& command);

}  // namespace hora::launcher
