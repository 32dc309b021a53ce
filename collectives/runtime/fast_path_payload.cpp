// SPDX-License-Identifier: Apache-2.0
// How the tensors of a fast-path operation lie in its memory. Results must have the same bits as
// those of the backend that would run the operation otherwise: reductions are done in the order of
// the ranks on one host, and pairwise between hosts, the lower host first, by the same kernels.
#include "collectives/runtime/fast_path_payload.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/algorithms/allreduce.h"
#include "collectives/kernels/kernels.h"
#include "collectives/memory/cache_lines.h"
#include "collectives/memory/segment.h"

namespace hora::collectives {

namespace {

std::size_t width_of(const Operation& operation) { return dtype_bytes(operation.request.dtype); }

std::size_t bytes_of(const Operation& operation) {
  if (operation.request.action == Action::kBarrier) return 0;
  return static_cast<std::size_t>(operation.count) * width_of(operation);
}

// The byte offsets at which each rank's rows begin in the result of an allgather, and the end.
std::vector<std::size_t> starts_of(const Operation& operation,
                                   const std::vector<std::int64_t>& rows) {
  const auto row =
      static_cast<std::size_t>(row_elements(operation.request.shape)) * width_of(operation);
  std::vector<std::size_t> starts(1, 0);
  for (const std::int64_t each : rows) {
    starts.push_back(starts.back() + static_cast<std::size_t>(each) * row);
  }
  return starts;
}

hora_reduce_op kernel_op(const Request& request) {
  return request.reduce_op == HORA_AVERAGE ? HORA_SUM
                                           : static_cast<hora_reduce_op>(request.reduce_op);
}

std::int64_t divisor_of(const Request& request, int size) {
  return request.reduce_op == HORA_AVERAGE ? size : 1;
}

// Calls function(piece, bytes before it) for each tensor of the operation.
template <typename Function>
void for_each_piece(const Operation& operation, const Function& function) {
  if (operation.pieces.empty()) {
    return function(Piece{operation.input, operation.output, operation.count, nullptr}, 0);
  }
  std::size_t before = 0;
  for (const Piece& piece : operation.pieces) {
    function(piece, before);
    before += static_cast<std::size_t>(piece.count) * width_of(operation);
  }
}

// Part of a tensor, in bytes.
struct Span {
  std::size_t begin;
  std::size_t bytes;
};

Span share_in_bytes(const Operation& operation, int rank, int size) {
  const auto width = static_cast<std::int64_t>(width_of(operation));
  const Share its = share_of(rank, size, 0, operation.count, width);
  return {static_cast<std::size_t>(its.begin * width),
          static_cast<std::size_t>((its.end - its.begin) * width)};
}

// A part of an operation that lies in one of its tensors.
struct PieceSpan {
  const char* input;
  char* output;
  std::size_t begin;  // in the operation, in bytes
  std::size_t bytes;
};

// Calls function(span) for each one of a part of the operation, at most `most` bytes at a time.
template <typename Function>
void for_each_span(const Operation& operation, const Span& part, std::size_t most,
                   const Function& function) {
  for_each_piece(operation, [&](const Piece& piece, std::size_t before) {
    const std::size_t piece_end =
        before + static_cast<std::size_t>(piece.count) * width_of(operation);
    const std::size_t end = std::min(piece_end, part.begin + part.bytes);
    for (std::size_t at = std::max(before, part.begin); at < end; at += most) {
      function(PieceSpan{static_cast<const char*>(piece.input) + (at - before),
                         static_cast<char*>(piece.output) + (at - before), at,
                         std::min(most, end - at)});
    }
  });
}

// All of the operation but this part of it: what is before it, and after it.
std::array<Span, 2> all_but(const Span& part, const Operation& operation) {
  const std::size_t end = part.begin + part.bytes;
  return {Span{0, part.begin}, Span{end, bytes_of(operation) - end}};
}

// What other ranks reduce.
std::array<Span, 2> shares_of_others(const Operation& operation, int rank, int size) {
  return all_but(share_in_bytes(operation, rank, size), operation);
}

// What stays in a core's first cache while it is reduced and copied.
constexpr std::size_t kBlockBytes = 4096;

constexpr hora_operation kOperations[] = {HORA_ALLREDUCE, HORA_BROADCAST,     HORA_ALLGATHER,
                                          HORA_BARRIER,   HORA_REDUCESCATTER, HORA_ALLTOALL};

bool reduces(Action action) {
  return action == Action::kAllreduce || action == Action::kReducescatter;
}

// Of an alltoall: the room for what a rank has for one other. No other rank knows what it has for
// the others, so these places do not depend on it.
std::size_t portion_room(std::size_t room, int size) {
  return room / static_cast<std::size_t>(size) / kLineBytes * kLineBytes;
}

// Calls function(of, bytes before it, its bytes) for the rows of each rank, where it has some.
template <typename Function>
void for_each_portion(const Operation& operation, const std::vector<std::int64_t>& rows,
                      const Function& function) {
  const auto row =
      static_cast<std::size_t>(row_elements(operation.request.shape)) * width_of(operation);
  std::size_t before = 0;
  for (std::size_t of = 0; of < rows.size(); ++of) {
    const std::size_t bytes = static_cast<std::size_t>(rows[of]) * row;
    if (bytes > 0) function(static_cast<int>(of), before, bytes);
    before += bytes;
  }
}

// Those of one rank.
Span portion_of(const Operation& operation, const std::vector<std::int64_t>& rows, int rank) {
  Span its{0, 0};
  for_each_portion(operation, rows, [&](int of, std::size_t before, std::size_t bytes) {
    if (of == rank) its = {before, bytes};
  });
  return its;
}

}  // namespace

int FastPathTable::row_of(Action action) {
  for (int row = 0; row < kActions; ++row) {
    if (static_cast<Action>(kOperations[row]) == action) return row;
  }
  return -1;
}

FastPathTable::FastPathTable(const ProcessSet& set, const std::vector<std::int32_t>& hosts,
                             std::size_t room)
    : room_(room), size_(set.size()), one_host_(set.one_host) {
  std::vector<std::int32_t> sorted = hosts;
  // Whether each host has one rank: then links run an allreduce between hosts, otherwise the
  // hierarchical backend does, and each adds in its own order.
  std::sort(sorted.begin(), sorted.end());
  const bool alone = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const Scope own = set.size() == 1 ? Scope::kRank : Scope::kHost;
  const Algorithm between = alone ? Algorithm::kPeerLinks : Algorithm::kComposed;
  SelectionQuery query;
  query.one_host = set.one_host;
  query.set_size = set.size();
  for (int row = 0; row < kActions; ++row) {
    query.operation = kOperations[row];
    const bool adds = query.operation == HORA_ALLREDUCE;
    // What leaders do not pass on.
    if (!one_host_ && (query.operation == HORA_REDUCESCATTER || query.operation == HORA_ALLTOALL)) {
      continue;
    }
    for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
      query.dtype = static_cast<hora_dtype>(dtype);
      bool allowed = true;
      // Both ends of the size range must select the same kind of backend; a table that changes the
      // backend in between could give other bits.
      for (const std::size_t bytes : {std::size_t{1}, room}) {
        query.bytes = static_cast<std::int64_t>(bytes);
        const SetBackend* const by =
            set.find_backend(select_backend(set.table, query).value_or(""));
        allowed = allowed && by != nullptr &&
                  (set.one_host ? by->scope == own
                   : adds       ? by->algorithm == between
                                : by->algorithm != Algorithm::kBackend);
        if (allowed) backends_[row] = by->id;
      }
      allowed_[row][dtype] = allowed;
    }
  }
}

const std::string& FastPathTable::backend(const Request& request) const {
  return backends_[row_of(request.action)];
}

bool FastPathTable::fits(const Operation& operation, const std::vector<std::int64_t>& rows) const {
  const Request& request = operation.request;
  const int row = row_of(request.action);
  // Members of a group complete together, which the fast path cannot promise.
  if (row < 0 || request.device != HORA_CPU_DEVICE || !request.group.empty() ||
      !allowed_[row][request.dtype]) {
    return false;
  }
  if (request.action == Action::kAllgather) return starts_of(operation, rows).back() <= room_;
  if (request.action == Action::kAlltoall) {
    const std::vector<std::size_t> starts = starts_of(operation, request.splits);
    return std::adjacent_find(starts.begin(), starts.end(),
                              [room = portion_room(room_, size_)](std::size_t a, std::size_t b) {
                                return b - a > room;
                              }) == starts.end();
  }
  // The sum of an average may need a wider type (WideAverage); over shared memory that of 16-bit
  // floats is one already.
  if (request.reduce_op == HORA_AVERAGE &&
      (one_host_ ? !is_floating(request.dtype)
                 : request.dtype != HORA_FLOAT32 && request.dtype != HORA_FLOAT64)) {
    return false;
  }
  // Adasum is an algorithm of several exchanges, not an element-wise reduction.
  return request.reduce_op != HORA_ADASUM && bytes_of(operation) <= room_;
}

void pack_fast_path(FastPath& fast_path, const Operation& operation,
                    const std::vector<std::int64_t>& rows, int rank) {
  const Request& request = operation.request;
  const std::size_t bytes = bytes_of(operation);
  if (bytes == 0 || (request.action == Action::kBroadcast && request.root != rank)) return;
  if (request.action == Action::kAlltoall) {
    char* const place = fast_path.own_place(fast_path.room());
    const std::size_t room = portion_room(fast_path.room(), fast_path.size());
    for_each_portion(operation, request.splits, [&](int to, std::size_t before, std::size_t its) {
      if (to == rank) return;
      std::memcpy(place + static_cast<std::size_t>(to) * room,
                  static_cast<const char*>(operation.input) + before, its);
    });
    return;
  }
  // Scaling happens on the way into shared memory, so it costs no pass of its own.
  char* const place = fast_path.own_place(bytes);
  const bool scales = reduces(request.action) && request.prescale != 1.0;
  const auto put = [&](const Span& part) {
    for_each_span(operation, part, bytes, [&](const PieceSpan& its) {
      if (scales) {
        kernels().scale[request.dtype](place + its.begin, its.input,
                                       static_cast<std::int64_t>(its.bytes / width_of(operation)),
                                       request.prescale);
      } else {
        std::memcpy(place + its.begin, its.input, its.bytes);
      }
    });
  };
  // What only this rank needs stays where it is, unless it is scaled.
  if (!scales && takes_two_turns(fast_path, operation)) {
    for (const Span& part : shares_of_others(operation, rank, fast_path.size())) put(part);
  } else if (!scales && request.action == Action::kReducescatter) {
    for (const Span& part : all_but(portion_of(operation, rows, rank), operation)) put(part);
  } else {
    put({0, bytes});
  }
}

bool takes_two_turns(const FastPath& fast_path, const Operation& operation) {
  return operation.request.action == Action::kAllreduce &&
         fast_path.takes_two_turns(bytes_of(operation));
}

void reduce_share(const FastPath& fast_path, const Operation& operation, int rank) {
  const Request& request = operation.request;
  const std::size_t bytes = bytes_of(operation);
  const int size = fast_path.size();
  // The first place that is not its own: no rank's elements are lost before they are read.
  const int first = rank == 0 ? 1 : 0;
  for_each_span(
      operation, share_in_bytes(operation, rank, size), kBlockBytes, [&](const PieceSpan& its) {
        const auto place = [&](int of) { return fast_path.place_of(of, bytes) + its.begin; };
        const auto source = [&](int of) -> const char* {
          return of == rank && request.prescale == 1.0 ? its.input : place(of);
        };
        for (int of = 0; of < size; ++of) {
          if (of != rank) take_lines(place(of), its.bytes);
        }
        char* const target = place(first);
        reduce_ranks(target, source, size,
                     static_cast<std::int64_t>(its.bytes / width_of(operation)), request.dtype,
                     kernel_op(request), request.postscale, divisor_of(request, size));
        for (int of = first + 1; of < size; ++of) {
          if (of != rank) std::memcpy(place(of), target, its.bytes);
        }
        std::memcpy(its.output, target, its.bytes);
      });
}

void unpack_shares(const FastPath& fast_path, const Operation& operation, int rank) {
  char* const place = fast_path.own_last_place(bytes_of(operation));
  for (const Span& part : shares_of_others(operation, rank, fast_path.size())) {
    for_each_span(operation, part, kBlockBytes, [&](const PieceSpan& its) {
      take_lines(place + its.begin, its.bytes);
      std::memcpy(its.output, place + its.begin, its.bytes);
    });
  }
}

namespace {

void take_portions(const FastPath& fast_path, Operation& operation,
                   const std::vector<std::int64_t>& rows, int rank) {
  const std::size_t room = portion_room(fast_path.room(), fast_path.size());
  const std::size_t own = portion_of(operation, operation.request.splits, rank).begin;
  auto* const result = static_cast<char*>(operation.result.data());
  for_each_portion(operation, rows, [&](int of, std::size_t before, std::size_t its) {
    const char* const from = of == rank ? static_cast<const char*>(operation.input) + own
                                        : fast_path.place_of(of, fast_path.room()) +
                                              static_cast<std::size_t>(rank) * room;
    std::memcpy(result + before, from, its);
  });
}

void gather_rows(const FastPath& fast_path, Operation& operation,
                 const std::vector<std::int64_t>& rows, int rank) {
  auto* const result = static_cast<char*>(operation.result.data());
  for_each_portion(operation, rows, [&](int of, std::size_t before, std::size_t its) {
    std::memcpy(result + before, of == rank ? operation.input : fast_path.place_of(of, its), its);
  });
}

void reduce_rows(const FastPath& fast_path, Operation& operation,
                 const std::vector<std::int64_t>& rows, int rank) {
  const Request& request = operation.request;
  const int size = fast_path.size();
  const std::size_t bytes = bytes_of(operation);
  const Span own = portion_of(operation, rows, rank);
  if (own.bytes == 0) return;
  const auto source = [&](int of) {
    const bool here = of == rank && request.prescale == 1.0;
    return (here ? static_cast<const char*>(operation.input) : fast_path.place_of(of, bytes)) +
           own.begin;
  };
  reduce_ranks(operation.result.data(), source, size,
               static_cast<std::int64_t>(own.bytes / width_of(operation)), request.dtype,
               kernel_op(request), request.postscale, divisor_of(request, size));
}

}  // namespace

void unpack_fast_path(FastPath& fast_path, Operation& operation,
                      const std::vector<std::int64_t>& rows, int rank) {
  const Request& request = operation.request;
  const std::size_t bytes = bytes_of(operation);
  LeaderFastPath* const leaders = fast_path.between_hosts();
  if (request.action == Action::kAllgather) {
    if (leaders == nullptr) return gather_rows(fast_path, operation, rows, rank);
    std::memcpy(operation.result.data(), leaders->result(), starts_of(operation, rows).back());
  } else if (request.action == Action::kAlltoall) {
    take_portions(fast_path, operation, rows, rank);
  } else if (bytes == 0) {
    return;
  } else if (request.action == Action::kReducescatter) {
    reduce_rows(fast_path, operation, rows, rank);
  } else if (request.action == Action::kBroadcast) {
    // In place on the root: the result is there already.
    if (request.root == rank && operation.input == operation.output) return;
    std::memcpy(operation.output,
                leaders != nullptr ? leaders->result() : fast_path.place_of(request.root, bytes),
                bytes);
  } else if (leaders != nullptr) {
    for_each_piece(operation, [&](const Piece& piece, std::size_t before) {
      const auto its = static_cast<std::size_t>(piece.count) * width_of(operation);
      if (its > 0) std::memcpy(piece.output, leaders->result() + before, its);
    });
  } else {
    // Every rank reduces everything by itself: a second turn would take longer.
    for_each_piece(operation, [&](const Piece& piece, std::size_t before) {
      reduce_ranks(
          piece.output, [&](int of) { return fast_path.place_of(of, bytes) + before; },
          fast_path.size(), piece.count, request.dtype, kernel_op(request), request.postscale,
          divisor_of(request, fast_path.size()));
    });
  }
}

FastPathPayload::FastPathPayload(LeaderFastPath& fast_path, const Operation& operation,
                                 const std::vector<std::int64_t>& rows, std::size_t shares_from)
    : fast_path_(fast_path),
      operation_(operation),
      bytes_(bytes_of(operation)),
      result_(fast_path.result()),
      in_shares_(operation.request.action == Action::kAllreduce && bytes_ >= shares_from &&
                 !fast_path.plan().has_partners()) {
  if (operation.request.action == Action::kAllgather) starts_ = starts_of(operation, rows);
}

FastPathPayload::Block FastPathPayload::block_of(std::int32_t rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return {starts_[at], starts_[at + 1] - starts_[at]};
}

// What that host keeps in that step. In the step of distance d, a host gives what d hosts brought.
FastPathPayload::Block FastPathPayload::kept(int host, const LeaderStep& step) const {
  Stretch left{0, operation_.count};
  const auto its = static_cast<int>(step.gives.size());
  for (int distance = 1; distance <= its; distance *= 2) {
    left = half_of(left, (host & distance) != 0);
  }
  const auto width = static_cast<std::int64_t>(width_of(operation_));
  return {static_cast<std::size_t>(left.begin * width),
          static_cast<std::size_t>(left.count * width)};
}

void FastPathPayload::bring() {
  const Request& request = operation_.request;
  const std::vector<std::int32_t>& here = fast_path_.plan().here();
  if (request.action == Action::kAllgather) {
    for (std::size_t place = 0; place < here.size(); ++place) {
      const Block block = block_of(here[place]);
      std::memcpy(result_ + block.begin, fast_path_.place_of(static_cast<int>(place), block.bytes),
                  block.bytes);
    }
  } else if (request.action == Action::kBroadcast) {
    const auto root = std::find(here.begin(), here.end(), request.root);
    // Only the host of the root has data at first. The others forward it once they have received
    // it.
    have_ = root != here.end();
    if (!have_ || bytes_ == 0) return;
    std::memcpy(result_, fast_path_.place_of(static_cast<int>(root - here.begin()), bytes_),
                bytes_);
  } else if (bytes_ > 0) {
    const auto source = [&](int place) { return fast_path_.place_of(place, bytes_); };
    reduce_ranks(result_, source, static_cast<int>(here.size()), operation_.count, request.dtype,
                 kernel_op(request), 1.0, 1);
  }
}

void FastPathPayload::finish() {
  const Request& request = operation_.request;
  if (request.action != Action::kAllreduce || bytes_ == 0) return;
  apply_scale(result_, operation_.count, request.dtype, request.postscale,
              divisor_of(request, fast_path_.size()));
}

void FastPathPayload::give(const LeaderStep& step, std::string& message) {
  const Action action = operation_.request.action;
  if (action == Action::kAllgather) {
    for (const int host : step.gives) {
      for (const std::int32_t rank : fast_path_.plan().members[static_cast<std::size_t>(host)]) {
        const Block block = block_of(rank);
        message.append(result_ + block.begin, block.bytes);
      }
    }
  } else if (in_shares_) {
    // Either what the peer is to reduce, or what is complete here.
    const Block its = kept(step.result ? fast_path_.plan().host : step.peer, step);
    message.append(result_ + its.begin, its.bytes);
  } else if (action != Action::kBroadcast || have_) {
    message.append(result_, bytes_);
  }
}

bool FastPathPayload::take(const LeaderStep& step, std::string_view bytes) {
  const Request& request = operation_.request;
  if (request.action == Action::kAllgather) {
    for (const int host : step.gets) {
      for (const std::int32_t rank : fast_path_.plan().members[static_cast<std::size_t>(host)]) {
        const Block block = block_of(rank);
        if (bytes.size() < block.bytes) return false;
        std::memcpy(result_ + block.begin, bytes.data(), block.bytes);
        bytes.remove_prefix(block.bytes);
      }
    }
    return bytes.empty();
  }
  // That leader has not received the tensor yet.
  if (request.action == Action::kBroadcast && bytes.empty()) return true;
  const int host = fast_path_.plan().host;
  const Block its = in_shares_ ? kept(step.result ? step.peer : host, step) : Block{0, bytes_};
  if (bytes.size() != its.bytes) return false;
  if (its.bytes == 0) return true;
  char* const mine = result_ + its.begin;
  if (request.action == Action::kBroadcast || step.result) {
    std::memcpy(mine, bytes.data(), its.bytes);
    have_ = true;
    return true;
  }
  // The operand of the lower host comes first, so that both sides compute the same bits.
  const bool left = host < step.peer;
  reduce_function(request.dtype, kernel_op(request))(
      mine, left ? mine : bytes.data(), left ? bytes.data() : mine,
      static_cast<std::int64_t>(its.bytes / width_of(operation_)));
  return true;
}

}  // namespace hora::collectives
