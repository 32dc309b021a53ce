// SPDX-License-Identifier: Apache-2.0
// What a host is sent: the agent as it lies there, or packed, by the build or by the launcher.
#include "launcher/transports/agent_payload.h"

#include <zlib.h>

#include <fstream>
#include <future>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"

using namespace hora;
using namespace hora::launcher;
using namespace hora::test;

namespace {

const std::string kAgent = "agent " + std::string(50'000, 'a') + " end";

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string get(const std::string& path, bool gzip) {
  AgentPayload payload(path);
  std::promise<std::string> promise;
  payload.get(gzip, [&](const Result<AgentPayload::Bytes>& bytes) {
    promise.set_value(bytes ? **bytes : "error: " + bytes.error().message);
  });
  return promise.get_future().get();
}

std::string packed(const std::string& bytes, int level) {
  z_stream stream{};
  REQUIRE(::deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

std::string unpacked(const std::string& bytes) {
  z_stream stream{};
  REQUIRE(::inflateInit2(&stream, 15 + 16) == Z_OK);
  std::string out(2 * kAgent.size(), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = ::inflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::inflateEnd(&stream);
  return code == Z_STREAM_END ? out : "not gzip";
}

}  // namespace

TEST_CASE("agent payload: raw, and packed by the launcher") {
  TemporaryDirectory directory;
  write(directory.path() + "/agent", kAgent);
  CHECK(get(directory.path() + "/agent", false) == kAgent);
  CHECK(unpacked(get(directory.path() + "/agent", true)) == kAgent);
}

TEST_CASE("agent payload: what the build has packed is sent as it is") {
  TemporaryDirectory directory;
  write(directory.path() + "/agent", kAgent);
  const std::string own = packed(kAgent, 9);
  REQUIRE(own != get(directory.path() + "/agent", true));
  write(directory.path() + "/agent.gz", own);
  CHECK(get(directory.path() + "/agent", true) == own);
  CHECK(get(directory.path() + "/agent", false) == kAgent);
}

TEST_CASE("agent payload: what another build has packed is not sent") {
  TemporaryDirectory directory;
  write(directory.path() + "/agent", kAgent);
  std::string other = kAgent;
  other[10] = 'b';
  for (const std::string& bytes : {packed(other, 9), packed(kAgent + "x", 9), std::string("short"),
                                   std::string(), packed(kAgent, 9).substr(0, 20)}) {
    write(directory.path() + "/agent.gz", bytes);
    CHECK(unpacked(get(directory.path() + "/agent", true)) == kAgent);
  }
}

TEST_CASE("agent payload: an agent that is not there is an error") {
  TemporaryDirectory directory;
  CHECK(get(directory.path() + "/agent", true).find("error: the agent") == 0);
}
