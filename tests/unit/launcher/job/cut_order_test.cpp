// --chaos cut as an order to an agent, and as messages to the kernel.
#include "launcher/job/cut_order.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <cstring>

#include "launcher/agent/nft_messages.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

InterfaceInfo nic(const std::string& address, bool loopback = false) {
  InterfaceInfo info;
  info.name = "eth0";
  info.address = address;
  info.up = true;
  info.loopback = loopback;
  return info;
}

HostNetwork machine(const std::string& name, std::vector<InterfaceInfo> interfaces) {
  HostNetwork host;
  host.name = name;
  host.interfaces = std::move(interfaces);
  return host;
}

const HostNetwork kA = machine("a", {nic("127.0.0.1", true), nic("10.0.0.1"), nic("172.17.0.1")});
const HostNetwork kB =
    machine("b", {nic("127.0.0.1", true), nic("10.0.0.2"), nic("172.17.0.1"), nic("fd00::2")});

// The types of the batch's messages; the lengths have to add up.
std::vector<int> types_of(const std::string& batch) {
  std::vector<int> types;
  std::size_t at = 0;
  while (at < batch.size()) {
    nlmsghdr header{};
    REQUIRE(at + sizeof header <= batch.size());
    std::memcpy(&header, batch.data() + at, sizeof header);
    REQUIRE(header.nlmsg_len >= sizeof header);
    types.push_back(header.nlmsg_type & 0xFF);
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  CHECK(at == batch.size());
  return types;
}

}  // namespace

TEST_CASE("a cut takes the addresses that are the other's alone, and spares what leads the job") {
  const auto cut = cut_order(kA, kB, {"10.0.0.9 40000 10.0.0.1 22", "", "nonsense"}, 9000);
  REQUIRE(cut);
  CHECK(*cut == CutOrder{{"10.0.0.2", "fd00::2"}, {{40000, 22}}, 9000});
  const auto none = cut_order(kA, kA, {}, 9000);
  REQUIRE_FALSE(none);
  CHECK(none.error().message ==
        "--chaos cut: a and a are one machine: there is nothing to cut between them");
}

TEST_CASE("a cut as a batch for the kernel") {
  const CutOrder cut{{"10.0.0.2", "fd00::2"}, {{40000, 22}}, 9000};
  const auto batch = cut_batch(cut, "t", CutTable::kActive);
  REQUIRE(batch);
  const auto types = types_of(*batch);
  REQUIRE(types.size() == 18);  // table; two chains of six rules each; the question; begin and end
  CHECK(types.front() == NFNL_MSG_BATCH_BEGIN);
  CHECK(types[1] == NFT_MSG_NEWTABLE);
  CHECK(types[2] == NFT_MSG_NEWCHAIN);
  CHECK(types[3] == NFT_MSG_NEWRULE);
  CHECK(types.back() == NFNL_MSG_BATCH_END);
  CHECK(cut_batch(cut, "t", CutTable::kTrial)->size() == batch->size());
  CHECK_FALSE(cut_batch({{"10.0.0"}, {}, 0}, "t", CutTable::kActive));
}

TEST_CASE("what the kernel answers about a batch") {
  const auto answer = [](int type, int error, std::uint32_t sequence) {
    nlmsghdr header{};
    header.nlmsg_type = static_cast<std::uint16_t>(type);
    nlmsgerr body{};
    body.error = error;
    body.msg.nlmsg_seq = sequence;
    std::string out(reinterpret_cast<const char*>(&header), sizeof header);
    return out.append(reinterpret_cast<const char*>(&body), sizeof body);
  };
  CHECK(batch_answer(answer(NLMSG_ERROR, 0, kCutBatchAck)) == 0);
  CHECK(batch_answer(answer(NLMSG_ERROR, -EPERM, 0)) == EPERM);
  CHECK(batch_answer(answer(NLMSG_ERROR, 0, 0)) == -1);
  CHECK(batch_answer(answer(NLMSG_DONE, 0, kCutBatchAck)) == -1);
  CHECK(batch_answer("short") == -1);
}
