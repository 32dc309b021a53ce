// SPDX-License-Identifier: Apache-2.0
// Where a program finds shared libraries that the loader alone would not: by its own run path, and,
// for an interpreter of Python, in its packages. Reads folders of this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// In the order of the search; `program` is a path, relative ones have none.
std::vector<std::string> program_folders(const std::string& program);

// The folders of NVIDIA's wheels (nvidia/nccl/lib and its kind) among the packages of the Python
// whose programs are in the folder of `program`. PyTorch, TensorFlow and JAX load their NCCL from
// there. Of a link, its own folder counts, and then that of what it leads to: an environment's
// python is a link.
std::vector<std::string> wheel_folders(const std::string& program);

// The same below folders of packages: "a:b", as PYTHONPATH has them.
std::vector<std::string> wheel_folders_in(std::string_view package_folders);

}  // namespace hora::launcher
