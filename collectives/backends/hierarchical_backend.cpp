// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/hierarchical_backend.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/fusion_buffer.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {

// One pass over the ranks in set order: hosts are numbered in the order of their first ranks, so
// every rank computes the same plan from the same list.

Hierarchy plan_hierarchy(const std::vector<std::int32_t>& ranks,
                         const std::vector<std::int32_t>& hosts, int index) {
  Hierarchy plan;
  std::map<std::int32_t, std::size_t> place_of;
  std::vector<std::vector<std::int32_t>> members;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto [place, fresh] = place_of.emplace(hosts[i], members.size());
    if (fresh) {
      members.emplace_back();
      plan.first_member.push_back(static_cast<int>(i));
    }
    auto& on_host = members[place->second];
    // A gap between two members of a host means that another host's rows would lie between theirs.
    const auto expected = plan.first_member[place->second] + static_cast<int>(on_host.size());
    if (expected != static_cast<int>(i)) plan.in_blocks = false;
    if (static_cast<int>(i) == index) {
      plan.host_index = static_cast<int>(place->second);
      plan.local_index = static_cast<int>(on_host.size());
    }
    on_host.push_back(ranks[i]);
  }
  for (const auto& on_host : members) plan.host_sizes.push_back(static_cast<int>(on_host.size()));
  // Driver i of each host talks to driver i of the others, so every host needs as many.
  plan.drivers = *std::min_element(plan.host_sizes.begin(), plan.host_sizes.end());
  plan.driving = plan.local_index < plan.drivers;
  plan.local = members[static_cast<std::size_t>(plan.host_index)];
  // The peers of a driver have its local index on their hosts.
  for (const auto& on_host : members) {
    if (plan.driving) plan.peers.push_back(on_host[static_cast<std::size_t>(plan.local_index)]);
  }
  return plan;
}

bool is_worth_hierarchy(const std::vector<std::int32_t>& hosts) {
  std::map<std::int32_t, int> counts;
  for (const std::int32_t host : hosts) ++counts[host];
  return counts.size() > 1 && std::any_of(counts.begin(), counts.end(),
                                          [](const auto& each) { return each.second > 1; });
}

// The local backend splits the tensor among the drivers of a host (the first `drivers` local
// ranks), and driver i of each host reduces part i with its peers. Ranks beyond the drivers have
// empty parts: they take part in the local steps only. part_ is a rank's own part, packed_ what has
// to be rearranged.

namespace {

// Below this size the parts would be so small that cutting costs more than sending everything once.
constexpr std::int64_t kSmallBytes = 16 * 1024;

class HierarchicalBackend final : public BlockingBackend<HierarchicalBackend> {
 public:
  HierarchicalBackend(Hierarchy plan, Backend* local, PeerLinks& links, std::int32_t set,
                      PointToPoint::Options options)
      : plan_(std::move(plan)), local_(local), links_(links) {
    if (plan_.driving) {
      between_.emplace(links, plan_.peers, plan_.host_index,
                       kHierarchyTag | static_cast<std::uint32_t>(set), options);
    }
  }

  // Only these two gain from the hierarchy, and the selection table offers no others.
  bool run(const Step& step, ErrorText& error) {
    try {
      return step.operation == HORA_ALLREDUCE ? allreduce(step, error)
             : step.operation == HORA_ALLGATHER
                 ? allgather(step, error)
                 : error.set("this backend does not support this operation");
    } catch (...) {
      // The exception has skipped the waits: end the transfers before their memory goes.
      if (between_) between_->give_up();
      throw;
    }
  }
  void abort() noexcept override {
    // A rank may be blocked in either of the two.
    if (local_ != nullptr) local_->abort();
    links_.abort();
  }
  void destroy() noexcept override {
    if (local_ != nullptr) local_->destroy();
    delete this;
  }

 private:
  int local_size() const { return static_cast<int>(plan_.local.size()); }

  // Runs a step within the host. A rank that is alone there only does what `alone` does.
  template <typename Alone>
  bool within(Step step, const Piece& piece, ErrorText& error, const Alone& alone) {
    if (local_ == nullptr) {
      alone();
      return true;
    }
    step.pieces = &piece;
    step.piece_count = 1;
    std::uint64_t ticket = 0;
    Progress progress = local_->execute(step, &ticket, error);
    // The step between the hosts needs the result, so this waits for the local backend.
    while (progress == Progress::kPending) progress = local_->poll(ticket, error);
    return progress == Progress::kDone;
  }

  // How many elements each local rank sends between the hosts; 0 for a rank that does not send.
  std::vector<std::int64_t> parts_of(std::int64_t count) const {
    // even_rows() gives every driver nearly the same share.
    std::vector<std::int64_t> parts = even_rows(count, plan_.drivers);
    parts.resize(plan_.local.size(), 0);
    return parts;
  }

  bool allreduce(const Step& step, ErrorText& error) {
    const auto width = static_cast<std::int64_t>(dtype_bytes(static_cast<hora_dtype>(step.dtype)));
    if (step.piece_count == 1) return allreduce_one(step, step.pieces[0], width, error);
    if (!allreduce_one(step, packed_.pack(step, width), width, error)) return false;
    packed_.unpack(step, width);
    return true;
  }

  bool allreduce_one(const Step& step, const Piece& piece, std::int64_t width, ErrorText& error) {
    // All ranks of the set agree on the count, so all of them skip the step.
    if (piece.count == 0) return true;
    if (piece.count * width <= kSmallBytes) return allreduce_small(step, piece, width, error);
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    const std::vector<std::int64_t> parts = parts_of(piece.count);
    const std::int64_t mine = parts[static_cast<std::size_t>(plan_.local_index)];
    part_.resize(static_cast<std::size_t>(mine * width));
    Step reduce = step;
    reduce.operation = HORA_REDUCESCATTER;
    // The local step applies the prescale; the rest of the scaling must come after the reduction
    // between the hosts.
    reduce.postscale = 1;
    reduce.divisor = 1;
    reduce.receive_counts = parts.data();
    // Counts beyond the drivers are 0, so this leaves each driver with its part.
    note(step, "LOCAL_REDUCESCATTER");
    const bool reduced = within(reduce, {piece.input, part_.data(), piece.count}, error, [&] {
      copy_unless_same(part_.data(), piece.input, mine * width);
      apply_scale(part_.data(), mine, dtype, step.prescale, 1);
    });
    noted(step);
    if (!reduced) return false;
    if (!reduce_between(step, part_.data(), mine, error)) return false;
    Step gather = unscaled(step, HORA_ALLGATHER);
    gather.receive_counts = parts.data();
    note(step, "LOCAL_ALLGATHER");
    const bool gathered = within(gather, {part_.data(), piece.output, mine}, error, [&] {
      copy_unless_same(piece.output, part_.data(), mine * width);
    });
    noted(step);
    return gathered;
  }

  // Small tensors: one rank of each host carries everything.
  bool allreduce_small(const Step& step, const Piece& piece, std::int64_t width, ErrorText& error) {
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    Step reduce = step;
    reduce.postscale = 1;
    reduce.divisor = 1;
    note(step, "LOCAL_ALLREDUCE");
    const bool reduced = within(reduce, piece, error, [&] {
      copy_unless_same(piece.output, piece.input, piece.count * width);
      apply_scale(piece.output, piece.count, dtype, step.prescale, 1);
    });
    noted(step);
    if (!reduced) return false;
    // One rank per host talks to the others: local index 0 is always a driver.
    const bool first = plan_.local_index == 0;
    if (first && !reduce_between(step, piece.output, piece.count, error)) return false;
    Step spread = unscaled(step, HORA_BROADCAST);
    spread.root = 0;
    note(step, "LOCAL_BCAST");
    const bool was_spread = within(spread, {piece.output, piece.output, piece.count}, error, [] {});
    noted(step);
    return was_spread;
  }

  // Reduces between the hosts. The remaining scaling happens here, each element on one rank per
  // host.
  bool reduce_between(const Step& step, void* data, std::int64_t count, ErrorText& error) {
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    // The other ranks go on to the next local step, where they wait for the drivers.
    if (!plan_.driving) return true;
    note(step, "CROSS_ALLREDUCE");
    const bool good =
        between_->allreduce(data, count, dtype, static_cast<hora_reduce_op>(step.reduce_op), error);
    noted(step);
    if (good) apply_scale(data, count, dtype, step.postscale, step.divisor);
    return good;
  }

  // For movements, which must not scale a second time.
  static Step unscaled(const Step& step, hora_operation operation) {
    Step plain = step;
    plain.operation = operation;
    plain.prescale = 1;
    plain.postscale = 1;
    plain.divisor = 1;
    return plain;
  }

  // Works in bytes, since cutting between elements does no harm to a copy.
  bool allgather(const Step& step, ErrorText& error) {
    const auto width = static_cast<std::int64_t>(dtype_bytes(static_cast<hora_dtype>(step.dtype)));
    const Piece& piece = step.pieces[0];
    auto* const output = static_cast<char*>(piece.output);
    // The set's rows are in blocks by host (Hierarchy::in_blocks), so each host's rows are
    // contiguous.
    std::vector<std::int64_t> starts{0};  // of each member's bytes
    int members = std::accumulate(plan_.host_sizes.begin(), plan_.host_sizes.end(), 0);
    for (int i = 0; i < members; ++i) {
      starts.push_back(starts.back() + step.receive_counts[i] * width);
    }
    const auto block = [&](int host) {  // begin and length of a host's bytes
      const auto at = static_cast<std::size_t>(host);
      const auto first = static_cast<std::size_t>(plan_.first_member[at]);
      const auto last = first + static_cast<std::size_t>(plan_.host_sizes[at]);
      return std::pair(starts[first], starts[last] - starts[first]);
    };
    const auto own_begin = block(plan_.host_index).first;
    std::vector<std::int64_t> counts;
    for (int i = 0; i < local_size(); ++i) {
      const auto member = plan_.first_member[static_cast<std::size_t>(plan_.host_index)] + i;
      counts.push_back(step.receive_counts[member] * width);
    }
    Step gather = unscaled(step, HORA_ALLGATHER);
    gather.dtype = HORA_UINT8;
    gather.receive_counts = counts.data();
    note(step, "LOCAL_ALLGATHER");
    bool good = within(gather, {piece.input, output + own_begin, piece.count * width}, error, [&] {
      copy_unless_same(output + own_begin, piece.input, piece.count * width);
    });
    noted(step);
    return good && gather_between(step, output, block, error);
  }

  // Each driver brings its part of every host's block: first the drivers exchange between the
  // hosts, then the ranks of a host exchange what their drivers hold, and each rank puts it into
  // place. `packed` is ordered by driver, then host.
  template <typename Block>
  bool gather_between(const Step& step, char* output, const Block& block, ErrorText& error) {
    const auto part = [&](int host, int driver) {
      const auto [begin, bytes] = block(host);
      const std::vector<std::int64_t> sizes = even_rows(bytes, plan_.drivers);
      const auto before = std::accumulate(sizes.begin(), sizes.begin() + driver, INT64_C(0));
      return std::pair(begin + before, sizes[static_cast<std::size_t>(driver)]);
    };
    // How many bytes each local rank holds after the exchange between the hosts.
    std::vector<std::int64_t> brought(plan_.local.size(), 0);
    std::int64_t total = 0;
    for (int driver = 0; driver < plan_.drivers; ++driver) {
      for (int host = 0; host < plan_.hosts(); ++host) {
        brought[static_cast<std::size_t>(driver)] += part(host, driver).second;
      }
      total += brought[static_cast<std::size_t>(driver)];
    }
    // A rank that does not send has contributed 0 and still takes part in the local allgather.
    part_.resize(static_cast<std::size_t>(brought[static_cast<std::size_t>(plan_.local_index)]));
    char* const packed = packed_.room(total);
    if (plan_.driving) {
      std::vector<std::int64_t> sizes;
      std::int64_t mine = 0;
      for (int host = 0; host < plan_.hosts(); ++host) {
        const auto [begin, bytes] = part(host, plan_.local_index);
        if (host == plan_.host_index) copy_unless_same(part_.data() + mine, output + begin, bytes);
        mine += bytes;
        sizes.push_back(bytes);
      }
      note(step, "CROSS_ALLGATHER");
      const bool good = between_->allgather(part_.data(), sizes.data(), error);
      noted(step);
      if (!good) return false;
    }
    Step gather = unscaled(step, HORA_ALLGATHER);
    gather.dtype = HORA_UINT8;
    gather.receive_counts = brought.data();
    note(step, "LOCAL_ALLGATHER");
    const auto own = static_cast<std::int64_t>(part_.size());
    // Now every rank of the host has all drivers' parts of all hosts.
    const bool good = within(gather, {part_.data(), packed, own}, error,
                             [&] { copy_unless_same(packed, part_.data(), own); });
    noted(step);
    if (!good) return false;
    // Unpack the other hosts' blocks; this host's block is in place already.
    const char* from = packed;
    for (int driver = 0; driver < plan_.drivers; ++driver) {
      for (int host = 0; host < plan_.hosts(); ++host) {
        const auto [begin, bytes] = part(host, driver);
        if (host != plan_.host_index) copy_unless_same(output + begin, from, bytes);
        from += bytes;
      }
    }
    return true;
  }

  static void note(const Step& step, const char* activity) {
    if (step.activities != nullptr) step.activities->begin(activity);
  }
  static void noted(const Step& step) {
    if (step.activities != nullptr) step.activities->end();
  }

  Hierarchy plan_;
  Backend* local_;
  PeerLinks& links_;
  std::optional<PointToPoint> between_;  // drivers only
  std::vector<char> part_;
  FusionBuffer packed_;
};

}  // namespace

Backend* make_hierarchical_backend(Hierarchy plan, Backend* local, PeerLinks& links,
                                   std::int32_t set, PointToPoint::Options options) {
  return new HierarchicalBackend(std::move(plan), local, links, set, options);
}

}  // namespace hora::collectives
