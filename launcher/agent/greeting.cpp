// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/greeting.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "launcher/machine/host_facts.h"
#include "launcher/machine/library_search.h"
#include "launcher/process/program_search.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// The agent looks before it knows the job's order, so that parts which the host lacks can travel
// while the other hosts are still connecting.

namespace {

std::vector<std::string> asked_for(const AgentOptions& options) {
  std::vector<std::string> names = libraries_in(options.parts);
  for (const std::string_view name : split(options.find, ',')) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::string own_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void append(std::vector<std::string>& folders, std::vector<std::string> more) {
  folders.insert(folders.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

// The wheels come last: a program that loads them does so by the path. Python also where the
// program is another: a script may start it.
std::vector<std::string> folders_of(const AgentOptions& options) {
  // In the order of the loader, for a program with a DT_RUNPATH. Ranks have this host's own value
  // if the launcher forwards none.
  const std::string& path = options.library_path;
  std::vector<std::string> folders = absolute_folders(
      (path.empty() ? own_variable("LD_LIBRARY_PATH") : path) + ":" + options.run_path);
  const std::string programs = own_variable("PATH");
  if (const auto program = find_program(options.program, programs, AT_FDCWD)) {
    append(folders, program_folders(*program));
    append(folders, wheel_folders(*program));
  }
  if (const auto python = find_program("python3", programs, AT_FDCWD)) {
    append(folders, wheel_folders(*python));
  }
  append(folders, wheel_folders_in(own_variable("PYTHONPATH")));
  if (const std::string home = own_variable("HOME"); !home.empty()) {
    append(folders, wheel_folders(home + "/.local/bin/python3"));
  }
  return folders;
}

}  // namespace

std::vector<HostLibrary> find_host_libraries(const AgentOptions& options) {
  std::vector<HostLibrary> found;
  const std::vector<std::string> names = asked_for(options);
  if (names.empty()) return found;
  const LibrarySearch search(folders_of(options));
  for (const std::string& name : names) {
    HostLibrary& each = found.emplace_back();
    each.soname = name;
    if (const auto file = search.find(name)) each.path = file->path;
    if (const auto whole = search.find_with_needs(name); !whole) each.fault = whole.error().message;
  }
  return found;
}

namespace {

// Those of the job's parts that this host needs. The launcher cannot know what a host has before
// its hello.
std::vector<std::string> needed_parts(const AgentOptions& options, const Hello& hello) {
  std::vector<std::string> needed;
  for (const NeededPart& part : options.parts) {
    if (is_needed(part, hello)) needed.push_back(part.hash);
  }
  return needed;
}

}  // namespace

Hello describe_host(const AgentOptions& options, Staging& staging, OneCpu* place) {
  // The CPUs that a process may use are asked of the kernel, which would report only the one CPU.
  Hello hello = [place] {
    const OneCpu::Pause pause(place);
    return describe_machine();
  }();
  hello.version = HORA_VERSION;
  hello.pid = ::getpid();
  // The needs of a part depend on the host, so the host must be described by now.
  hello.libraries = find_host_libraries(options);
  hello.missing_parts = staging.find_missing(needed_parts(options, hello));
  hello.cache_directory = options.cache_directory;
  if (const char* connection = ::getenv("SSH_CONNECTION")) hello.ssh_connection = connection;
  if (options.report_sha) {
    hello.agent_sha256 = options.own_sha256;
    if (hello.agent_sha256.empty()) {
      if (auto sha = sha256_of_file("/proc/self/exe")) hello.agent_sha256 = std::move(*sha);
    }
  }
  return hello;
}

}  // namespace hora::launcher
