// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/messages.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

const std::string kAnyBytes("\x00\xff'\"$()\n\x80 =.", 12);

Hello some_hello() {
  Hello hello;
  hello.version = "1";
  hello.agent_sha256 = "ab";
  hello.machine = "aarch64";
  hello.hostname = kAnyBytes;
  hello.pid = 1ll << 40;
  hello.missing_parts = {"0123456789abcdef", "fedcba9876543210"};
  hello.interfaces = {{"eth0", "10.0.0.1", 24, true, false, false, 1000, 1500}, {}};
  hello.clock_ns = -5;
  return hello;
}

HostOrder some_order() {
  HostOrder order;
  order.job_id = "j";
  order.working_directory = kAnyBytes;
  order.argv = {"a", "", kAnyBytes};
  order.environment = {{"a.b", kAnyBytes}, {"X", ""}};
  order.prepend_paths = {{"PATH", "@bundle@/bin"}};
  order.ranks = {{3, 1, {{"HOROVOD_RANK", "3"}}, StdinSource::kStream}};
  order.pmi = "pmix";
  order.pmi_hosts = {{"a", {0, 1, 2}}, {kAnyBytes, {3}}};
  order.pmi_host = 1;
  return order;
}

}  // namespace

TEST_CASE("messages survive the wire") {
  REQUIRE(decode<Hello>(encode(some_hello())).value() == some_hello());
  REQUIRE(decode<HostOrder>(encode(some_order())).value() == some_order());

  const Probe probe{{{1, {"10.0.0.1", "fe80::1"}, 80, "n"}}, 5};
  REQUIRE(decode<Probe>(encode(probe)).value() == probe);
  const ProbeResult result{{{1, "10.0.0.1", true, "10.0.0.2", ""}}};
  REQUIRE(decode<ProbeResult>(encode(result)).value() == result);
  const BundlePart part{"h", "00", {{"a/b", 1ull << 40, 0755, ""}, {"l", 0, 0777, "a/b"}}};
  REQUIRE(decode<BundlePart>(encode(part)).value() == part);
  const BundleManifest manifest{{part, {"i", "01", {}}}};
  REQUIRE(decode<BundleManifest>(encode(manifest)).value() == manifest);
  const ShipFile ship{"train.py", 3, 0644, "00"};
  REQUIRE(decode<ShipFile>(encode(ship)).value() == ship);
  const OfferTree offer{{std::string(64, 'a'), std::string(64, 'b')}};
  REQUIRE(decode<OfferTree>(encode(offer)).value() == offer);
  const TreeState state{{std::string(64, 'b')}};
  REQUIRE(decode<TreeState>(encode(state)).value() == state);
  const KeepDelivery keep{std::string(64, 'a'), "key"};
  REQUIRE(decode<KeepDelivery>(encode(keep)).value() == keep);
  const FetchDelivery fetch{std::string(64, 'b'), 1ull << 30, "key", {{"n1", {"10.0.0.1"}, 80}}, 5};
  REQUIRE(decode<FetchDelivery>(encode(fetch)).value() == fetch);
  const DeliveryReport report{std::string(64, 'c'), true, 4711, {kAnyBytes, ""}};
  REQUIRE(decode<DeliveryReport>(encode(report)).value() == report);
  const Started started{{{0, 11}, {1, 12}}};
  REQUIRE(decode<Started>(encode(started)).value() == started);
  RankExit exit;
  exit.rank = 2;
  exit.signal = 9;
  exit.code = "E_INTERPRETER";
  exit.stage = SpawnStage::kInterpreter;
  exit.errnum = 2;
  exit.program = exit.interpreter = kAnyBytes;
  exit.last_stderr = kAnyBytes;
  exit.last_operation = kAnyBytes;
  REQUIRE(decode<RankExit>(encode(exit)).value() == exit);
  const GpuFault fault{"0000:3b:00", 79, 2, 4711, "python3", kAnyBytes};
  REQUIRE(decode<GpuFault>(encode(fault)).value() == fault);
  const Goodbye goodbye{1, {77}, 3};
  REQUIRE(decode<Goodbye>(encode(goodbye)).value() == goodbye);
  const Failure failure{"E_CWD", kAnyBytes, ""};
  REQUIRE(decode<Failure>(encode(failure)).value() == failure);
  const PmiJob job{"j", {{"a", {0, 1}}, {"b", {}}}, 1, kAnyBytes, {1}};
  REQUIRE(decode<PmiJob>(encode(job)).value() == job);
  const PmiReply reply{"", {{3, {{"PMIX_RANK", "3"}, {"X", kAnyBytes}}}}, "a socket"};
  REQUIRE(decode<PmiReply>(encode(reply)).value() == reply);
  const LogLine line{2, "x"};
  REQUIRE(decode<LogLine>(encode(line)).value() == line);
}

TEST_CASE("two megabytes of environment survive the wire") {
  HostOrder order = some_order();
  for (int i = 0; i < 5000; ++i) {
    order.environment.emplace_back("N" + std::to_string(i), std::string(400, static_cast<char>(i)));
  }
  REQUIRE(decode<HostOrder>(encode(order)).value() == order);
}

TEST_CASE("malformed messages are errors that name the field") {
  REQUIRE_FALSE(decode<Hello>("").has_value());
  REQUIRE_FALSE(decode<Hello>("\xff\xff\xff").has_value());
  const auto wrong_kind = decode<HostOrder>(encode(some_hello()));
  REQUIRE_FALSE(wrong_kind.has_value());
  REQUIRE(wrong_kind.error().message.find("field '") != std::string::npos);

  // Every truncation and every flipped byte: an answer, never a crash.
  const std::string whole = encode(some_order());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    REQUIRE_FALSE(decode<HostOrder>(std::string_view(whole).substr(0, size)).has_value());
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0x01, 0x20, 0x80}) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ bit);
      (void)decode<HostOrder>(flipped);
    }
  }
}
