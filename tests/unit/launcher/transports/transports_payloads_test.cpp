// SPDX-License-Identifier: Apache-2.0
// What a host is sent: the agent as it is, or what the build has packed.
#include <zlib.h>

#include <fstream>
#include <set>
#include <thread>

#include "launcher/transports/agent_link.h"
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

// "gz BYTES" or "raw BYTES".
std::string get(const std::string& path, bool takes_gzip) {
  AgentPayloads payloads;
  const auto payload = payloads.get(path, takes_gzip);
  if (!payload) return "error: " + payload.error().message;
  return (payload->gzip ? "gz " : "raw ") + *payload->bytes;
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

}  // namespace

TEST_CASE("agent payload: what the build has packed is sent to hosts that unpack it") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/agent";
  write(path, kAgent);
  CHECK(get(path, true) == "raw " + kAgent);
  write(path + ".gz", packed(kAgent, 9));
  CHECK(get(path, true) == "gz " + packed(kAgent, 9));
  CHECK(get(path, false) == "raw " + kAgent);
}

TEST_CASE("agent payload: what another build has packed is not sent") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/agent";
  write(path, kAgent);
  std::string other = kAgent;
  other[10] = 'b';
  for (const std::string& bytes : {packed(other, 9), packed(kAgent + "x", 9), std::string("short"),
                                   std::string(), packed(kAgent, 9).substr(0, 20)}) {
    write(path + ".gz", bytes);
    CHECK(get(path, true) == "raw " + kAgent);
  }
}

TEST_CASE("agent payload: an agent that is not there is an error, and so is an empty one") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/agent";
  CHECK(get(path, true).find("error: the agent") == 0);
  write(path, "");
  CHECK(get(path, true) == "error: the agent " + path + " is empty");
}

TEST_CASE("agent payload: hosts that ask at one time share the bytes") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/agent";
  write(path, kAgent);
  write(path + ".gz", packed(kAgent, 9));
  AgentPayloads payloads;
  std::vector<AgentPayloads::Bytes> answers(8);
  std::vector<std::thread> hosts;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    hosts.emplace_back([&, i] { answers[i] = payloads.get(path, i % 2 == 0).value().bytes; });
  }
  for (std::thread& host : hosts) host.join();
  CHECK(std::set<AgentPayloads::Bytes>(answers.begin(), answers.end()).size() == 2);
}
