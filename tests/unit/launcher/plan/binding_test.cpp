// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/binding.h"

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("CPU lists keep the order in which they are written") {
  const auto lists = parse_cpu_lists("8,0-2:4", "--bind");
  REQUIRE(lists);
  CHECK(*lists == std::vector<std::vector<int>>{{8, 0, 1, 2}, {4}});
  CHECK(format_cpu_list(lists->front()) == "0-2,8");
  CHECK(format_cpu_list({}).empty());
}

TEST_CASE("Errors in CPU lists point at the item") {
  const auto error_of = [](std::string_view text) {
    const auto lists = parse_cpu_lists(text, "--bind");
    return lists ? "" : lists.error().message.substr(0, lists.error().message.find('\n'));
  };
  CHECK(error_of("0-3:x") == "--bind: column 5: expected CPUs such as 0-3,8, found 'x'");
  CHECK(error_of("0-3,") == "--bind: column 5: expected CPUs such as 0-3,8, found ''");
  CHECK(error_of("4,3-1") == "--bind: column 3: the range '3-1' ends before it begins");
  CHECK(error_of("1,0-2") == "--bind: column 3: CPU 1 is listed twice");
  CHECK(error_of("0-9999") == "--bind: column 1: CPU 9999 is too large; at most 8191");
}

using Shares = std::vector<std::vector<int>>;

std::vector<CpuPlace> cpus(int count, int per_core, int per_node) {
  std::vector<CpuPlace> out;
  for (int cpu = 0; cpu < count; ++cpu) out.push_back({cpu, cpu / per_core, cpu / per_node});
  return out;
}

// Two sockets of two caches of two cores of one CPU.
std::vector<CpuPlace> two_sockets() {
  std::vector<CpuPlace> out;
  for (int cpu = 0; cpu < 8; ++cpu) out.push_back({cpu, cpu, cpu / 4, cpu / 4, cpu / 2 * 2});
  return out;
}

Binding plan(const std::vector<CpuPlace>& usable, int ranks, const std::string& mode) {
  auto binding = plan_binding(usable, ranks, mode);
  REQUIRE(binding);
  return *binding;
}

std::string error_of(const std::vector<CpuPlace>& usable, int ranks, const std::string& mode) {
  const auto binding = plan_binding(usable, ranks, mode);
  REQUIRE_FALSE(binding);
  return binding.error().message;
}

TEST_CASE("cores are shared equally, whole") {
  const Binding binding = plan(cpus(8, 2, 8), 2, "core");
  CHECK(binding.cpus == Shares{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(binding.threads == 2);
  CHECK(plan(cpus(4, 1, 4), 3, "core").cpus == Shares{{0}, {1}, {2, 3}});
  const Binding crowded = plan(cpus(2, 1, 2), 4, "core");
  CHECK(crowded.cpus == Shares{{0}, {0}, {1}, {1}});
  CHECK(crowded.threads == 1);
  CHECK(crowded.why == "fewer cores than ranks: they share");
}

TEST_CASE("auto binds to NUMA nodes where there are several") {
  CHECK(plan(cpus(8, 1, 8), 4, "auto").cpus.empty());
  CHECK(plan(cpus(8, 1, 4), 1, "auto").cpus.empty());
  CHECK(plan(cpus(4, 1, 2), 4, "auto").cpus == Shares{{0, 1}, {0, 1}, {2, 3}, {2, 3}});
  CHECK(plan(cpus(4, 1, 2), 4, "none").cpus.empty());
  CHECK(plan({}, 4, "core").cpus.empty());
}

TEST_CASE("sockets and caches go to neighbouring ranks") {
  const Binding sockets = plan(two_sockets(), 4, "socket");
  CHECK(sockets.cpus == Shares{{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}});
  CHECK(sockets.why == "each rank on its socket, of 2");
  CHECK(sockets.threads == 2);
  const Binding caches = plan(two_sockets(), 4, "l3");
  CHECK(caches.cpus == Shares{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(caches.why == "each rank on the CPUs of one L3 cache, of 4");
  // A virtual machine may not say which caches it has.
  auto unknown = two_sockets();
  unknown[3].l3 = -1;
  const Binding fallback = plan(unknown, 2, "l3");
  CHECK(fallback.cpus == Shares{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(fallback.why.find("which L3 caches there are is not known") != std::string::npos);
}

TEST_CASE("CPUs that the user lists") {
  const Binding shared = plan(two_sockets(), 2, "cpu-list:6,0-3");
  CHECK(shared.cpus == Shares{{6, 0}, {1, 2, 3}});
  CHECK(shared.threads == 2);
  // More lists than this host has ranks are for the others.
  const Binding each = plan(cpus(8, 2, 8), 2, "cpu-list:0-1:4,6:7");
  CHECK(each.cpus == Shares{{0, 1}, {4, 6}});
  CHECK(each.threads == 1);

  CHECK(error_of(cpus(4, 1, 4), 2, "cpu-list:2-4") ==
        "--bind cpu-list: CPU 4 is not one that this job may use; it may use 0-3");
  CHECK(error_of(cpus(4, 1, 4), 3, "cpu-list:2-3") ==
        "--bind cpu-list: 2 CPUs for 3 ranks of this host; list more, or start fewer ranks");
  CHECK(error_of(cpus(4, 1, 4), 3, "cpu-list:2:3") ==
        "--bind cpu-list: 2 lists for 3 ranks of this host; expected one list for all, or one for "
        "each rank");
}

TEST_CASE("a quota of CPUs limits the threads") {
  CHECK(threads_within(1, 1, 8) == 1);
  CHECK(threads_within(4, 2, 8) == 2);
  CHECK(threads_within(2.5, 1, 8) == 2);
  CHECK(threads_within(0.5, 4, 8) == 1);
  CHECK(threads_within(64, 1, 8) == 8);
}

TEST_CASE("GPUs by local rank") {
  const std::vector<std::string> four{"0", "1", "2", "3"};
  CHECK(*plan_gpus(four, 4, 3, "auto") == "3");
  CHECK(*plan_gpus(four, 2, 1, "auto") == "2,3");
  CHECK(*plan_gpus(four, 8, 5, "auto") == "1");
  CHECK(*plan_gpus(four, 2, 1, "1") == "1");
  CHECK(*plan_gpus(four, 2, 1, "2") == "2,3");
  CHECK(*plan_gpus({"7", "9"}, 2, 1, "auto") == "9");
  CHECK(plan_gpus({}, 2, 0, "auto")->empty());
}

TEST_CASE("ranks that ask for more GPUs than there are get none") {
  const auto error = [](const std::vector<std::string>& visible, int ranks, int index,
                        const std::string& per_rank) {
    return plan_gpus(visible, ranks, index, per_rank).error().message;
  };
  CHECK(error({"0"}, 2, 0, "1") == "2 ranks of this host need 2 GPUs, and there is 1");
  CHECK(error({"0", "1", "2"}, 2, 0, "2") == "2 ranks of this host need 4 GPUs, and there are 3");
  CHECK(error({}, 1, 0, "1") == "1 rank of this host needs 1 GPU, and there are 0");
  // The second of an elastic job, which comes alone.
  CHECK(error({"0"}, 1, 1, "1") == "2 ranks of this host need 2 GPUs, and there is 1");
  CHECK(error({"MIG-a", "MIG-b"}, 1, 0, "2") == "a process uses one MIG device, not 2");
  CHECK(*plan_gpus({"MIG-a", "MIG-b"}, 1, 0, "auto") == "MIG-a");
}

TEST_CASE("CUDA_VISIBLE_DEVICES ends at the first word that is not a device") {
  const auto devices = [](std::string_view list) { return join(*visible_gpus(list), " "); };
  CHECK(devices("2,0") == "2 0");
  CHECK(devices(" GPU-8932f937 , MIG-1") == "GPU-8932f937 MIG-1");
  CHECK(devices("0,-1,1") == "0");
  CHECK(devices("NoDevFiles").empty());
  CHECK(devices("-1").empty());
  CHECK(devices("").empty());
  CHECK(visible_gpus("0,1,0").error().message == "CUDA_VISIBLE_DEVICES=0,1,0 names GPU 0 twice");
  CHECK_FALSE(visible_gpus("GPU-8932f937,GPU-8932"));
}

// Two sockets of two cores with two hardware threads each, numbered as Linux numbers them: CPU 0
// and 4 share the first core.
std::vector<CpuPlace> machine() {
  std::vector<CpuPlace> places;
  for (int cpu = 0; cpu < 8; ++cpu) {
    CpuPlace place;
    place.cpu = cpu;
    place.core = cpu % 4;
    place.package = cpu % 4 / 2;
    places.push_back(place);
  }
  return places;
}

std::vector<CoreRange> parsed(std::string_view text) {
  const auto cores = parse_core_list(text, {"ranks", text, 1}, 0);
  if (!cores) FAIL(cores.error().message);
  return *cores;
}

std::vector<int> cpus(std::string_view text) {
  const auto found = cpus_of(parsed(text), machine());
  if (!found) FAIL(found.error().message);
  return *found;
}

TEST_CASE("Cores of a rankfile") {
  CHECK(cpus("0") == std::vector<int>{0, 4});
  CHECK(cpus("1-2") == std::vector<int>{1, 2, 5, 6});
  CHECK(cpus("1:0") == std::vector<int>{2, 6});
  CHECK(cpus("1:0,1") == std::vector<int>{2, 3, 6, 7});
  CHECK(cpus("1:*") == cpus("1:0-1"));
  CHECK(cpus("*").size() == 8);
  // After a ';' cores are counted over all sockets again.
  CHECK(cpus("1:1;0") == std::vector<int>{0, 3, 4, 7});
  CHECK(cpus("0:0,1:0") == std::vector<int>{0, 2, 4, 6});
  CHECK(cpus("0,0-1") == cpus("0-1"));
  CHECK(parsed("0:1-2;*") == std::vector<CoreRange>{{0, 1, 2}, {{}, 0, {}}});
}

TEST_CASE("Cores of a rankfile: counted among those that the job may use") {
  auto some = machine();
  some.erase(some.begin());  // CPU 0; its core has CPU 4 left
  some.erase(some.begin());  // CPU 1
  CHECK(cpus_of(parsed("0-1"), some).value() == std::vector<int>{4, 5});
  CHECK(cpus_of(parsed("0:2"), some).error().message ==
        "core 2 is not there; this job may use 2 cores of socket 0, from 0");
  CHECK(cpus_of(parsed("4"), some).error().message ==
        "core 4 is not there; this job may use 4 cores, from 0");
  CHECK(cpus_of(parsed("2:*"), some).error().message ==
        "socket 2 is not there; this job may use 2 sockets, from 0");
}

TEST_CASE("Cores of a rankfile: mistakes") {
  for (const std::string_view text : {"", "x", "1:", ":1", "3-1", "1,", ",1", ";", "-1", "0:1:2",
                                      "1.5", "9999999", "0x1", "1 "}) {
    INFO(text);
    const auto cores = parse_core_list(text, {"ranks", text, 7}, 0);
    REQUIRE_FALSE(cores);
    CHECK(cores.error().message.find("ranks:7:") == 0);
    CHECK(cores.error().message.find("expected cores such as 0-3") != std::string::npos);
  }
}

}  // namespace
}  // namespace hora::launcher
