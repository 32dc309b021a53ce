// On which memory node (NUMA) each rank of a host computes, and what follows for the memory that
// they share. Where the ranks are on one node, or may move between nodes, nothing does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hora::collectives::shm {

inline constexpr int kAnyNode = -1;  // on several, or not known

struct NodeCpus {
  int node = 0;
  std::vector<int> cpus;
};

// "0-3,8": the kernel's list.  [pure]
std::vector<int> parse_cpu_list(const std::string& text);
// The node that has all of these CPUs.  [pure]
int node_of(const std::vector<int>& cpus, const std::vector<NodeCpus>& nodes);

// The ranks of a set, in the order in which that of `index` turns to them, itself first: those of
// its node, then node by node. At each step everybody turns to another rank, as far as the nodes
// have as many ranks: so no memory and no link between nodes serves all at once, and what passes
// such a link, which takes longer to come, is asked for last. On one node: the next one, and so on.
// [pure]
std::vector<int> turning_order(const std::vector<int>& nodes, int index);
bool on_several_nodes(const std::vector<int>& nodes);

// "all ranks on node 0", "ranks 4, 5 on node 0; 6, 7 on node 1". `ranks`: their numbers.  [pure]
std::string name_nodes(const std::vector<int>& nodes, const std::int32_t* ranks);

// The node of the CPUs that this thread may use.
int own_node();
// The whole pages of this shared memory come from that node's when they are first touched, by
// whomever; those that this process has touched already move, and with `filled` those that exist
// without. False: the kernel does not do it (errno).
bool place_on_node(void* memory, std::size_t bytes, int node, bool filled);

}  // namespace hora::collectives::shm
