// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/greeting.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/host_facts.h"
#include "launcher/agent/host_libraries.h"
#include "rendezvous/base/machine.h"

namespace hora::launcher {

namespace {

// Of the job's parts, those that this host needs. The launcher cannot know what a host has before
// the host says so.
std::vector<std::string> needed_parts(const AgentOptions& options, const Hello& hello) {
  std::vector<std::string> needed;
  for (const NeededPart& part : options.parts) {
    if (is_needed(part, hello)) needed.push_back(part.hash);
  }
  return needed;
}

}  // namespace

Hello brief_hello() {
  Hello hello;
  hello.version = HORA_VERSION;
  hello.pid = ::getpid();
  hello.machine = own_machine();
  return hello;
}

Hello full_hello(const AgentOptions& options, Staging& staging, OneCpu* place) {
  // What a process may use is asked of the kernel, which would tell the one CPU.
  Hello hello = [place] {
    const OneCpu::Pause pause(place);
    return describe_machine();
  }();
  hello.version = HORA_VERSION;
  hello.pid = ::getpid();
  // What a part needs depends on the host, so the host must be described by now.
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
