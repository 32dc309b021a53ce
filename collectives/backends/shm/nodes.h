// SPDX-License-Identifier: Apache-2.0
// On which memory node (NUMA) each rank of a host computes, and where the shared memory should lie.
// When the ranks are on one node, or may move between nodes, nothing changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hora::collectives::shm {

inline constexpr int kAnyNode = -1;  // on several nodes, or unknown

struct NodeCpus {
  int node = 0;
  std::vector<int> cpus;
};

// Parses "0-3,8", the kernel's format of a list.  [pure]
std::vector<int> parse_cpu_list(const std::string& text);
// The node that has all of these CPUs, or kAnyNode.  [pure]
int node_of(const std::vector<int>& cpus, const std::vector<NodeCpus>& nodes);

// The ranks of a set in the order in which the rank of `index` turns to them: itself, the others of
// its node, then node by node. At each step all ranks turn to different ones, as far as the nodes
// have equally many ranks: so no memory and no link between nodes serves all at once, and data that
// crosses a link, which takes longer, comes last. On one node: the next rank, and so on.
// [pure]
std::vector<int> turning_order(const std::vector<int>& nodes, int index);
bool on_several_nodes(const std::vector<int>& nodes);

// "all ranks on node 0", "ranks 4, 5 on node 0; 6, 7 on node 1". `ranks`: their numbers.  [pure]
std::string name_nodes(const std::vector<int>& nodes, const std::int32_t* ranks);

// The node of the CPUs that this thread may use, or kAnyNode.
int own_node();
// Makes the whole pages of this shared memory come from that node when any rank first touches them.
// Pages that this process has touched already move; with `filled`, so do those that exist without a
// touch. False: the kernel refuses (errno).
bool place_on_node(void* memory, std::size_t bytes, int node, bool filled);

}  // namespace hora::collectives::shm
