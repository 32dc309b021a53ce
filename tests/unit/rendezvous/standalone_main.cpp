// SPDX-License-Identifier: Apache-2.0
// The rendezvous server alone, for tests and benchmarks that need it as a process of its own.
//   hora-rendezvous-standalone [--address A:PORT]... [--token-file F] [--allow CIDR]...
//                              [--idle-timeout MS] [--request-timeout MS]
#include <cstdio>
#include <string>
#include <string_view>

#include "rendezvous/base/text.h"
#include "rendezvous/serve.h"

using namespace hora;
using namespace hora::rendezvous;

namespace {

Status read_option(std::string_view name, const std::string& value, ServeOptions& options) {
  if (name == "--address") {
    auto endpoint = parse_endpoint(value);
    if (!endpoint) return std::move(endpoint).error();
    options.server.addresses.push_back(*endpoint);
    return Ok{};
  }
  if (name == "--token-file") {
    auto token = read_token_file(value);
    if (!token) return std::move(token).error();
    options.access.token = *token;
    return Ok{};
  }
  if (name == "--allow") {
    auto network = parse_cidr(value);
    if (!network) return std::move(network).error();
    options.access.allow.push_back(*network);
    return Ok{};
  }
  const auto milliseconds = parse_int<int>(value);
  if (!milliseconds) return make_error(ErrorCode::kUsage, quote(value) + ": expected a number");
  if (name == "--idle-timeout") {
    options.server.idle_timeout = std::chrono::milliseconds(*milliseconds);
  } else if (name == "--request-timeout") {
    options.server.request_timeout = std::chrono::milliseconds(*milliseconds);
  } else {
    return make_error(ErrorCode::kUsage, "unknown option " + quote(name));
  }
  return Ok{};
}

Status run(int argc, char** argv) {
  ServeOptions options;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return make_error(ErrorCode::kUsage, "an option without its value");
    HORA_TRY(read_option(argv[i], argv[i + 1], options));
  }
  return serve_rendezvous(std::move(options));
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = run(argc, argv);
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.error().code == ErrorCode::kUsage ? 2 : 1;
}
