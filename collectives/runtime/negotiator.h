// SPDX-License-Identifier: Apache-2.0
// The messages of the ranks about operations: requests to rank 0, responses from it. Rank 0 also
// keeps the table of requests by rank. Belongs to the thread that drives the runtime.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/negotiation/coordinator.h"
#include "collectives/negotiation/sequence.h"
#include "collectives/runtime/interruption.h"
#include "collectives/runtime/mailbox.h"
#include "collectives/runtime/request_queue.h"
#include "collectives/runtime/tuner.h"
#include "collectives/runtime/wide_average.h"
#include "collectives/runtime/world.h"
#include "collectives/trace/observer.h"

namespace hora::collectives {

class Negotiator {
 public:
  struct Links {
    const World& world;
    Mailbox& mailbox;
    ProcessSets& sets;
    RequestQueue& queue;
    Observer& observer;
    Tuner& tuner;
    const Interruption& interruption;  // ends a wait for ranks that do not read
  };
  explicit Negotiator(const Links& links);

  // Asks rank 0 for these; they are pending from now on. `taken_before`: the observer knows.
  void ask(std::span<OperationPtr> operations, bool taken_before);

  // Rank 0: what has become ready, after the others have received it. Empty: nothing, or it waits
  // for more until gathering_until().
  std::vector<AgreedOp> take_ready();
  // The sequence of everything that has become ready, after the others have received it; null: take
  // what is ready.
  SequencePtr take_ready_together();
  // All of a sequence, as take_ready() gives it.
  std::vector<AgreedOp> members(const Sequence& sequence) const;
  const std::optional<Deadline>& gathering_until() const { return gathering_until_; }
  // Null but on rank 0.
  Coordinator* coordinator() { return coordinator_ ? &*coordinator_ : nullptr; }
  const Coordinator* coordinator() const { return coordinator_ ? &*coordinator_ : nullptr; }

  // The messages of the control channel. False, or nothing: it is malformed.
  [[nodiscard]] bool handle_requests(int rank, std::string_view bytes);
  [[nodiscard]] bool handle_in_full(std::string_view bytes);
  // The sequence that these responses are; null: handle them.
  SequencePtr answered_together(std::string_view bytes);
  std::optional<std::vector<AgreedOp>> handle_responses(std::string_view bytes);

 private:
  AgreedOp agreed_op(const Response* known, std::unique_ptr<Response> made, CacheId number) const;
  void add_in_full(int rank, const ProcessSet& set, Request request, Clock::time_point now);
  void add_by_number(int rank, const Reference& reference, Clock::time_point now);
  bool ask_together(std::span<OperationPtr> operations);
  bool add_together(int rank, std::string_view bytes, Clock::time_point now);
  bool holds(const Sequence& sequence) const;
  bool wait_for_more();
  void take_own_column(AgreedOp& each);
  void announce(std::vector<AgreedOp>& list);
  static const Request* newly_asked(const AgreedOp& each);
  void learn(ProcessSet& set, AgreedOp& each);
  std::string encode_responses_for(int rank, const std::vector<AgreedOp>& list) const;
  void send_responses(const std::vector<std::int32_t>& ranks, const std::string& bytes) const;
  void flush();

  Links links_;
  std::optional<Coordinator> coordinator_;  // rank 0
  std::vector<std::int32_t> others_;        // rank 0: all others
  Sequences sequences_;
  std::optional<Deadline> gathering_until_;  // rank 0: what is ready waits for more
};

}  // namespace hora::collectives
