// SPDX-License-Identifier: Apache-2.0
// Stands in for the agent in tests of the transports: says Hello, then follows its arguments.
//   double_agent agent --cache DIR [--report-sha] [--parts H] [--stay] MODE...
//     --echo          sends back every frame it gets, until its input ends
//     --flood BYTES   sends that many bytes in kData frames, then kGoodbye
//     --no-hello      the magic, and then nothing
//     --die SIGNO     Hello, then dies by that signal
//     --exit CODE     no magic; a line on stderr; exits
//     --lie           reports a hash that is not its own
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <sha256.h>

#include "launcher/protocol/messages.h"

namespace {

using namespace hora::launcher;

void write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (wrote > 0) bytes.remove_prefix(static_cast<std::size_t>(wrote));
    if (wrote < 0 && errno != EINTR) ::_exit(1);
  }
}

void wait_for_end_of_input() {
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

void echo() {
  static char buffer[256 * 1024];
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got > 0) write_all({buffer, static_cast<std::size_t>(got)});
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

void flood(unsigned long long bytes) {
  unsigned long long sent = 0;
  std::string payload(32 * 1024, '\0');
  while (sent < bytes) {
    const std::size_t part =
        static_cast<std::size_t>(std::min<unsigned long long>(payload.size(), bytes - sent));
    for (std::size_t i = 0; i < part; i += 64) {
      payload[i] = static_cast<char>((sent + i) / 64);  // so that a lost piece shows
    }
    write_all(encode_frame(FrameType::kData, std::string_view(payload).substr(0, part)));
    sent += part;
  }
  write_all(encode_frame(FrameType::kGoodbye, encode(Goodbye{})));
}

}  // namespace

int main(int argc, char** argv) {
  Hello hello;
  hello.version = "double";
  hello.pid = ::getpid();
  std::string mode;
  unsigned long long number = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    const bool has_value = i + 1 < argc;
    if (argument == "--cache" && has_value) {
      hello.cache_directory = argv[++i];
    } else if (argument == "--parts" && has_value) {
      ++i;
    } else if (argument == "--report-sha") {
      char hex[SHA256_DIGEST_STRING_LENGTH];
      if (::SHA256File("/proc/self/exe", hex) != nullptr) hello.agent_sha256 = hex;
    } else if (argument == "--lie") {
      hello.agent_sha256 = std::string(64, '0');
    } else if (argument != "--stay" && argument.substr(0, 2) == "--") {  // its input's end ends it
      mode = argument;
      if ((mode == "--flood" || mode == "--die" || mode == "--exit") && has_value) {
        number = std::strtoull(argv[++i], nullptr, 10);
      }
    }
  }
  if (mode == "--exit") {
    std::fprintf(stderr, "the double gives up\n");
    return static_cast<int>(number);
  }
  write_all(kAgentMagic);
  if (mode == "--no-hello") {
    wait_for_end_of_input();
    return 0;
  }
  write_all(encode_frame(FrameType::kHello, encode(hello)));
  if (mode == "--die") ::raise(static_cast<int>(number));
  if (mode == "--echo") {
    echo();
  } else if (mode == "--flood") {
    flood(number);
  } else {
    wait_for_end_of_input();
  }
  return 0;
}
