// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/shm/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

using namespace hora::collectives::shm;

TEST_CASE("memory nodes: the kernel's lists of CPUs") {
  CHECK(parse_cpu_list("0-3,8\n") == std::vector<int>{0, 1, 2, 3, 8});
  CHECK(parse_cpu_list("5") == std::vector<int>{5});
  CHECK(parse_cpu_list("\n").empty());
  CHECK(parse_cpu_list("").empty());
  CHECK(parse_cpu_list("2-").empty());
  CHECK(parse_cpu_list("1,x") == std::vector<int>{1});
}

TEST_CASE("memory nodes: a rank belongs to the node that has all of its CPUs") {
  const std::vector<NodeCpus> nodes{{0, {0, 1, 4, 5}}, {2, {2, 3, 6, 7}}};
  CHECK(node_of({1, 4}, nodes) == 0);
  CHECK(node_of({3}, nodes) == 2);
  CHECK(node_of({1, 2}, nodes) == kAnyNode);
  CHECK(node_of({9}, nodes) == kAnyNode);
  CHECK(node_of({}, nodes) == kAnyNode);
  CHECK(node_of({0}, {}) == kAnyNode);
}

TEST_CASE("memory nodes: on one node the ranks follow each other") {
  for (const int node : {0, 3, kAnyNode}) {
    const std::vector<int> nodes(5, node);
    for (int index = 0; index < 5; ++index) {
      std::vector<int> expected;
      for (int step = 0; step < 5; ++step) expected.push_back((index + step) % 5);
      CHECK(turning_order(nodes, index) == expected);
    }
  }
}

TEST_CASE(
    "memory nodes: the own node comes first, and at each step every rank has a different target") {
  for (const auto& nodes : std::vector<std::vector<int>>{{0, 0, 1, 1},
                                                         {0, 1, 0, 1, 0, 1},
                                                         {0, 0, 1, 1, 2, 2, 3, 3},
                                                         {1, 0},
                                                         {0, 0, 0, 0, 1, 1, 1, 1}}) {
    const std::size_t size = nodes.size();
    std::vector<std::vector<int>> orders;
    for (std::size_t i = 0; i < size; ++i)
      orders.push_back(turning_order(nodes, static_cast<int>(i)));
    for (std::size_t step = 0; step < size; ++step) {
      std::set<int> targets;
      for (const auto& order : orders) targets.insert(order[step]);
      CHECK(targets.size() == size);
    }
    for (std::size_t i = 0; i < size; ++i) {
      CHECK(orders[i].front() == static_cast<int>(i));
      const auto at_home =
          static_cast<std::size_t>(std::count(nodes.begin(), nodes.end(), nodes[i]));
      for (std::size_t step = 0; step < size; ++step) {
        const bool home = nodes[static_cast<std::size_t>(orders[i][step])] == nodes[i];
        CHECK(home == (step < at_home));
      }
    }
  }
}

TEST_CASE("memory nodes: with unequal nodes every rank still visits all ranks") {
  const std::vector<int> nodes{0, kAnyNode, 1, 0, 0, kAnyNode, 7};
  for (int index = 0; index < 7; ++index) {
    std::vector<int> order = turning_order(nodes, index);
    CHECK(order.front() == index);
    std::sort(order.begin(), order.end());
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("memory nodes: in words") {
  const std::int32_t ranks[] = {4, 5, 6, 7};
  CHECK(name_nodes({0, 0, 0}, ranks) == "all ranks on node 0");
  CHECK(name_nodes({kAnyNode, kAnyNode}, ranks) == "all ranks on no node of their own");
  CHECK(name_nodes({0, 1, 0, kAnyNode}, ranks) ==
        "ranks 4, 6 on node 0; 5 on node 1; 7 on no node of their own");
}

namespace {

// Where the kernel has each page; less than 0: nowhere yet.
std::vector<int> nodes_of_pages(char* memory, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<void*> pages;
  for (std::size_t at = 0; at < bytes; at += page) pages.push_back(memory + at);
  std::vector<int> nodes(pages.size(), -1);
  if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) {
    nodes.clear();
  }
  return nodes;
}

}  // namespace

TEST_CASE("memory nodes: shared memory that is placed on a node is there and keeps its bytes") {
  // In a machine that is made for it (tests/numa/run) all nodes are tried.
  const char* const reported = std::getenv("HORA_TEST_NODES");
  std::vector<int> nodes{own_node()};
  for (int node = 0; reported != nullptr && node < std::atoi(reported); ++node)
    nodes.push_back(node);
  for (std::size_t i = 0; i < 2 * nodes.size(); ++i) {
    const int node = nodes[i / 2];
    const bool filled = i % 2 == 1;
    constexpr std::size_t kBytes = 1 << 20;
    const hora::os::Fd fd(memfd_create("hora-test", MFD_CLOEXEC));
    REQUIRE(ftruncate(fd.get(), kBytes) == 0);
    if (filled) REQUIRE(posix_fallocate(fd.get(), 0, kBytes) == 0);
    void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    char* const memory = static_cast<char*>(mapped);
    std::fill(memory, memory + kBytes / 4, 'x');
    const bool placed = place_on_node(memory + 5, kBytes - 10, node, filled);
    const int why_not = errno;
    INFO("node " << node << (filled ? ", filled, " : ", ") << std::strerror(why_not));
    const std::vector<int> before = nodes_of_pages(memory, kBytes);
    // A machine may have no nodes, a container may forbid the calls; else it works.
    if (reported != nullptr || (node != kAnyNode && why_not != EPERM && why_not != ENOSYS)) {
      CHECK(placed);
      // Memory that was never made or touched costs nothing.
      if (!before.empty()) CHECK((before[before.size() / 2] >= 0) == filled);
    }
    CHECK(std::all_of(memory, memory + kBytes / 4, [](char c) { return c == 'x'; }));
    std::fill(memory, memory + kBytes, 'y');
    const std::vector<int> after = nodes_of_pages(memory, kBytes);
    if (reported != nullptr) CHECK_FALSE(after.empty());
    for (std::size_t at = 1; placed && at + 1 < after.size(); ++at) CHECK(after[at] == node);
    munmap(mapped, kBytes);
  }
}

TEST_CASE("memory nodes: a number that does not name a node is refused") {
  alignas(4096) static char memory[2 * 4096];
  CHECK_FALSE(place_on_node(memory, sizeof memory, kAnyNode, true));
  CHECK_FALSE(place_on_node(memory, sizeof memory, 1 << 20, true));
  CHECK(place_on_node(memory + 1, 100, 0, true));  // no whole page: nothing to do
}
