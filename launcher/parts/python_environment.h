// SPDX-License-Identifier: Apache-2.0
// A Python environment of the user's, for --ship-env: what it is and needs, and its files as hosts
// get them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/parts/user_tree.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// A Python environment of the user's, for --ship-env: what it is, and what it needs where it goes.
// A virtual environment names the Python that it was made from by an absolute path. If that one is
// the system's (below /usr), hosts must have the same; any other is sent along, and both become one
// installation without pyvenv.cfg, since Python finds its library from where its program lies. A
// folder that has its own Python (conda, python-build-standalone) is such an installation already.

struct PythonEnvironment {
  std::string path;                 // of the folder, as given
  std::string folder;               // the same without links
  std::string version;              // "3.11"
  std::string machine;              // that its Python is built for: "x86_64"; empty: unknown
  std::string program;              // the Python itself: /usr/bin/python3.11
  bool is_virtual = false;          // made from a Python elsewhere
  bool uses_host_python = false;    // which hosts must have, as `program`
  std::string base;                 // the folder of a Python that is sent along; empty: none
  bool uses_base_packages = false;  // include-system-site-packages
  bool is_conda = false;
  bool needs_library_path = false;  // its Python finds libpython only where it was installed
  // Packages that are somewhere else on this machine and would be missing: "mine (/home/me/mine)".
  std::vector<std::string> outside;
};

// kUsage: it is none, or one that could not work elsewhere; the message says why.
Result<PythonEnvironment> examine_environment(const std::string& path);

// Why it cannot run there.
std::optional<Failure> why_unfit(const PythonEnvironment& environment, const Hello& host);

// For people: "Python 3.11, with its own interpreter".
std::string describe(const PythonEnvironment& environment);

// The files of a Python environment as hosts get them: the same whatever machine and folder they
// come from and go to, so that nothing is sent again because it was installed again.

// What would be sent, for people, by names and sizes alone: ".venv: Python 3.11, its interpreter
// travels; 812 files, 64.2M".
Result<std::string> what_travels(const PythonEnvironment& environment);

// Its files are write-protected: ranks use them where hosts keep them.
Result<UserTree> read_environment_tree(const PythonEnvironment& environment, TreeMemory& memory);

// Entries for the ranks' PATH and similar, before their own; "@environment@" stands for the
// environment's folder there.
std::vector<std::pair<std::string, std::string>> environment_paths(
    const PythonEnvironment& environment);

// A program of the environment that a command names by its path here: what it is called there.
// Anything else as it is.
std::string program_there(const PythonEnvironment& environment, const std::string& program);

}  // namespace hora::launcher
