// SPDX-License-Identifier: Apache-2.0
// Properties that ranks have to agree on, checked from the general to the particular, so that the
// error names the root of a difference rather than a consequence of it.
#include <cmath>
#include <cstdio>

#include "collectives/negotiation/coordinator.h"

namespace hora::collectives {

namespace {

// The shortest text that reads back as the same value: "0.1", not "0.10000000000000001".
std::string factor_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  char brief[40];
  std::snprintf(brief, sizeof brief, "%g", value);
  double parsed = 0;
  std::sscanf(brief, "%lf", &parsed);
  return parsed == value ? brief : text;
}

std::string scale_text(const Request& request) {
  return "prescale " + factor_text(request.prescale) + " and postscale " +
         factor_text(request.postscale);
}

std::string device_text(const Request& request) {
  return request.device == HORA_CPU_DEVICE ? "CPU" : "GPU";
}

std::string splits_text(const Request& request) {
  return request.splits.empty() ? "no splits" : std::to_string(request.splits.size()) + " splits";
}

std::string group_text(const Request& request) {
  if (request.group.empty()) return "no group";
  return "the group of " + std::to_string(request.group_size) + " that begins with '" +
         request.group + "'";
}

std::string members_text(const Request& request) {
  if (!request.members) return "one tensor";
  return "a prepared set of " + std::to_string(request.members->names.size()) + " tensors";
}

std::string member_text(const Members& members, std::size_t at) {
  return "'" + members->names[at] + "' of " + std::to_string(members->counts[at]) + " elements";
}

// Both ranks, for the sentence that names them.
struct Sides {
  int my_rank;
  int their_rank;
  const Request& mine;

  std::string differ(std::string_view what, const std::string& my_value,
                     const std::string& their_value) const {
    return title_of(mine.action, mine.name) + ": " + std::string(what) + " differs: rank " +
           std::to_string(my_rank) + " has " + my_value + ", rank " + std::to_string(their_rank) +
           " has " + their_value;
  }
};

// An allgather and an alltoall may differ in the first dimension; a barrier has no shape.
bool needs_equal_shape(Action action) {
  return action == Action::kAllreduce || action == Action::kBroadcast ||
         action == Action::kReducescatter;
}

// Which dimensions must agree depends on the operation.
std::string shape_mismatch(const Sides& sides, const Request& mine, const Request& theirs) {
  if (needs_equal_shape(mine.action)) {
    if (mine.shape == theirs.shape) return {};
    return sides.differ("the shape", format_shape(mine.shape), format_shape(theirs.shape));
  }
  // Only the first dimension may differ in these two.
  if (mine.action != Action::kAllgather && mine.action != Action::kAlltoall) return {};
  // Different numbers of dimensions first: otherwise the loop below would read past the end.
  if (mine.shape.size() != theirs.shape.size()) {
    return sides.differ("the number of dimensions", std::to_string(mine.shape.size()),
                        std::to_string(theirs.shape.size()));
  }
  for (std::size_t i = 1; i < mine.shape.size(); ++i) {
    if (mine.shape[i] != theirs.shape[i]) {
      return sides.differ("dimension " + std::to_string(i), format_shape(mine.shape),
                          format_shape(theirs.shape));
    }
  }
  return {};
}

// The tensors of a prepared set: a set is compared as a whole, and says which tensor differs first.
std::string members_mismatch(const Sides& sides, const Request& mine, const Request& theirs) {
  if (mine.members == theirs.members) return {};
  if (!mine.members || !theirs.members ||
      mine.members->names.size() != theirs.members->names.size()) {
    return sides.differ("the number of tensors", members_text(mine), members_text(theirs));
  }
  std::size_t at = 0;
  while (mine.members->names[at] == theirs.members->names[at] &&
         mine.members->counts[at] == theirs.members->counts[at]) {
    ++at;
  }
  return sides.differ("tensor " + std::to_string(at) + " of the prepared set",
                      member_text(mine.members, at), member_text(theirs.members, at));
}

// A scale that is computed may be NaN on all ranks; the results say so.
bool same_scale(double mine, double theirs) {
  return mine == theirs || (std::isnan(mine) && std::isnan(theirs));
}

// Only reductions use these fields; elsewhere a difference has no effect.
std::string reduction_mismatch(const Sides& sides, const Request& mine, const Request& theirs) {
  if (mine.action != Action::kAllreduce && mine.action != Action::kReducescatter) return {};
  if (!same_scale(mine.prescale, theirs.prescale) ||
      !same_scale(mine.postscale, theirs.postscale)) {
    return sides.differ("the scaling", scale_text(mine), scale_text(theirs));
  }
  if (mine.reduce_op != theirs.reduce_op) {
    return sides.differ("the reduction", std::string(reduce_op_name(mine.reduce_op)),
                        std::string(reduce_op_name(theirs.reduce_op)));
  }
  return {};
}

}  // namespace

std::string describe_mismatch(int my_rank, const Request& mine, int their_rank,
                              const Request& theirs) {
  const Sides sides{my_rank, their_rank, mine};
  // With different operations no other field is comparable.
  if (mine.action != theirs.action) {
    return "'" + mine.name + "': the operation differs: rank " + std::to_string(my_rank) + " has " +
           std::string(action_name(mine.action)) + ", rank " + std::to_string(their_rank) +
           " has " + std::string(action_name(theirs.action));
  }
  // For these two the shape holds ranks or an id, so the text must not speak of a shape.
  if (mine.action == Action::kAddProcessSet || mine.action == Action::kRemoveProcessSet) {
    if (mine.shape == theirs.shape) return {};
    return sides.differ(mine.action == Action::kAddProcessSet ? "the list of ranks" : "the id",
                        format_shape(mine.shape), format_shape(theirs.shape));
  }
  if (std::string text = members_mismatch(sides, mine, theirs); !text.empty()) return text;
  if (mine.dtype != theirs.dtype) {
    return sides.differ("the dtype", std::string(dtype_name(mine.dtype)),
                        std::string(dtype_name(theirs.dtype)));
  }
  if (std::string text = shape_mismatch(sides, mine, theirs); !text.empty()) return text;
  if (std::string text = reduction_mismatch(sides, mine, theirs); !text.empty()) return text;
  if (mine.root != theirs.root) {
    return sides.differ("the root rank", std::to_string(mine.root), std::to_string(theirs.root));
  }
  // Each rank of an alltoall may have splits or not: the runtime fills in equal ones.
  if (mine.splits.empty() != theirs.splits.empty() && mine.action != Action::kAlltoall) {
    return sides.differ("the use of splits", splits_text(mine), splits_text(theirs));
  }
  // The ordinals may differ, since each rank numbers its own devices.
  if ((mine.device == HORA_CPU_DEVICE) != (theirs.device == HORA_CPU_DEVICE)) {
    return sides.differ("the device", device_text(mine), device_text(theirs));
  }
  // Last: a group only decides when tensors run, not what they compute.
  if (mine.group != theirs.group || mine.group_size != theirs.group_size) {
    return sides.differ("the group", group_text(mine), group_text(theirs));
  }
  return {};
}

}  // namespace hora::collectives
