// SPDX-License-Identifier: Apache-2.0
// Uses the system calls and /sys instead of libnuma, which a host need not have.
#include "collectives/backends/shm/nodes.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::collectives::shm {

namespace {

// Constants of linux/mempolicy.h, a header that only comes with libnuma.
constexpr int kPreferred = 1;
constexpr unsigned kMovePages = 1 << 1;
constexpr int kWordBits = 8 * sizeof(unsigned long);
constexpr int kMostNodes = 1024;
// More than any host has today; sched_getaffinity() fails with a mask shorter than the kernel's.
constexpr int kMostCpus = 8192;

bool take_number(std::string_view& text, int& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return read.ec == std::errc{};
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

// Without /sys the list is empty, and every rank counts as bound to no node.
std::vector<NodeCpus> nodes_of_this_machine() {
  const std::string folder = "/sys/devices/system/node";
  std::vector<NodeCpus> nodes;
  for (const std::string& name : os::names_in(folder)) {
    // The folder also holds files such as "online" and "possible".
    if (!name.starts_with("node")) continue;
    const auto number = parse_int<int>(std::string_view(name).substr(4));
    if (!number) continue;
    const auto cpus = os::read_file(folder + "/" + name + "/cpulist");
    nodes.push_back({*number, parse_cpu_list(cpus ? *cpus : std::string())});
  }
  return nodes;
}

std::vector<int> usable_cpus() {
  unsigned long mask[kMostCpus / kWordBits] = {};
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask)) != 0) return cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    // A bit mask instead of CPU_ISSET, which stops at 1024 CPUs.
    if ((mask[cpu / kWordBits] >> (cpu % kWordBits) & 1) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

bool contains(const std::vector<int>& list, int item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// The distinct nodes, in the order of their first rank.
std::vector<int> distinct(const std::vector<int>& nodes) {
  std::vector<int> found;
  for (const int node : nodes) {
    if (!contains(found, node)) found.push_back(node);
  }
  return found;
}

std::vector<int> ranks_on(const std::vector<int>& nodes, int node) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] == node) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

// The kernel only moves pages that are in this process's page table; reading a byte brings one
// there.
void look_at_pages(const volatile char* begin, std::size_t bytes, std::size_t page) {
  for (std::size_t at = 0; at < bytes; at += page) static_cast<void>(begin[at]);
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& list) {
  std::vector<int> cpus;
  std::string_view text = list;
  int first = 0;
  while (take_number(text, first)) {
    int last = first;
    if (take(text, '-') && !take_number(text, last)) break;
    for (int cpu = first; cpu <= last && cpu < kMostCpus; ++cpu) cpus.push_back(cpu);
    if (!take(text, ',')) break;
  }
  return cpus;
}

int node_of(const std::vector<int>& cpus, const std::vector<NodeCpus>& nodes) {
  if (cpus.empty()) return kAnyNode;
  for (const NodeCpus& each : nodes) {
    // A process that may run on two nodes belongs to neither.
    const auto here = [&](int cpu) { return contains(each.cpus, cpu); };
    if (std::all_of(cpus.begin(), cpus.end(), here)) return each.node;
  }
  return kAnyNode;
}

std::vector<int> turning_order(const std::vector<int>& nodes, int index) {
  const std::vector<int> all = distinct(nodes);
  const int own = nodes[static_cast<std::size_t>(index)];
  const auto place_in = [](const std::vector<int>& list, int item) {
    return static_cast<std::size_t>(std::find(list.begin(), list.end(), item) - list.begin());
  };
  // Each rank goes round the nodes from its own.
  const std::size_t first_node = place_in(all, own);
  // A rank starts with its own place on each node, which spreads the ranks of one node over
  // another.
  const std::size_t place = place_in(ranks_on(nodes, own), index);
  std::vector<int> order;
  for (std::size_t step = 0; step < all.size(); ++step) {
    const std::vector<int> ranks = ranks_on(nodes, all[(first_node + step) % all.size()]);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      order.push_back(ranks[(place + i) % ranks.size()]);
    }
  }
  return order;
}

bool on_several_nodes(const std::vector<int>& nodes) { return distinct(nodes).size() > 1; }

// Groups the ranks by node, in the order of the nodes' first ranks.
std::string name_nodes(const std::vector<int>& nodes, const std::int32_t* numbers) {
  const auto name = [](int node) {
    return node == kAnyNode ? std::string("no node of their own") : "node " + std::to_string(node);
  };
  const std::vector<int> all = distinct(nodes);
  if (all.size() == 1) return "all ranks on " + name(all.front());
  std::string text;
  for (const int node : all) {
    text += text.empty() ? "ranks " : "; ";
    const std::vector<int> ranks = ranks_on(nodes, node);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(numbers[ranks[i]]);
    }
    text += " on " + name(node);
  }
  return text;
}

int own_node() {
  const std::vector<NodeCpus> nodes = nodes_of_this_machine();
  // With one node the affinity does not matter.
  return nodes.size() == 1 ? nodes.front().node : node_of(usable_cpus(), nodes);
}

bool place_on_node(void* memory, std::size_t bytes, int node, bool filled) {
  // For the early return: the caller reports errno.
  errno = EINVAL;
  if (node < 0 || node >= kMostNodes - 1) return false;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  // Only whole pages: those at the edges also belong to a neighbour.
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + bytes) / page * page;
  if (begin >= end) return true;
  if (filled) look_at_pages(reinterpret_cast<char*>(begin), end - begin, page);
  unsigned long mask[kMostNodes / kWordBits] = {};
  mask[node / kWordBits] |= 1UL << (node % kWordBits);
  // "Preferred" falls back to other nodes when this one is full; a strict policy would fail.
  return ::syscall(SYS_mbind, begin, end - begin, kPreferred, mask, kMostNodes, kMovePages) == 0;
}

}  // namespace hora::collectives::shm
