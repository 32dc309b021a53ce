// SPDX-License-Identifier: Apache-2.0
// The files of a Python environment as hosts get them: the same whatever machine and folder they
// come from and go to, so that nothing is sent again because it was installed again.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/build/python_environment.h"
#include "launcher/build/user_tree.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// What would be sent, for people, by names and sizes alone: ".venv: Python 3.11, its interpreter
// travels; 812 files, 64.2M".
Result<std::string> what_travels(const PythonEnvironment& environment);

// Nobody may write to its files: ranks use them where hosts keep them.
Result<UserTree> read_environment_tree(const PythonEnvironment& environment, TreeMemory& memory);

// What ranks find before their own PATH and the like, "@environment@" standing for its place there.
std::vector<std::pair<std::string, std::string>> environment_paths(
    const PythonEnvironment& environment);

// A program of the environment that a command names by its path here: what it is called there.
// Anything else as it is.
std::string program_there(const PythonEnvironment& environment, const std::string& program);

}  // namespace hora::launcher
