// SPDX-License-Identifier: Apache-2.0
// A training step submits the same names in the same order as the one before it. So each record of
// a name points to the one that followed it the last time, and keeps its operation: if the next
// request is the expected one, a comparison is all that it takes.
#include "collectives/runtime/request_queue.h"

#include "collectives/runtime/request_check.h"

namespace hora::collectives {

namespace {

bool has_own_result(const Operation& operation) {
  const Action action = operation.request.action;
  return action != Action::kAllreduce && action != Action::kBroadcast;
}

// Whether the operation with this name can be submitted once more for this request.
bool can_start_again(const NameRecord& record, const hora_request& given, std::string_view group,
                     std::size_t group_size) {
  // Without another owner it is done, and its handle released.
  if (record.in_flight || record.operation == nullptr || !record.operation.alone()) return false;
  const Request& request = record.operation->request;
  return request.group == group && static_cast<std::size_t>(request.group_size) == group_size &&
         repeats(given, *record.operation);
}

}  // namespace

RequestQueue::Push RequestQueue::push_again(
    std::span<const hora_request> requests, bool exact,
    const std::function<void(std::span<const OperationPtr>)>& hand_out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ || last_ == nullptr) return Push::kNotAgain;
  std::string_view group;
  if (requests.size() > 1) {
    if (requests.front().name == nullptr) return Push::kNotAgain;
    group = requests.front().name;
  }
  // Counted before a name is looked at, as in push().
  const std::size_t others = in_flight_.fetch_add(requests.size(), std::memory_order_seq_cst);
  const NameRecord* const alone = alone_.load(std::memory_order_seq_cst);
  const std::size_t waited = waiting_.size();
  NameRecord* record = last_;
  for (const hora_request& given : requests) {
    record = record->next;
    if (record == nullptr || record == alone ||
        !can_start_again(*record, given, group, requests.size())) {
      for (; waiting_.size() > waited; waiting_.pop_back()) {
        waiting_.back()->record->in_flight = false;
      }
      in_flight_.fetch_sub(requests.size(), std::memory_order_relaxed);
      return Push::kNotAgain;
    }
    record->in_flight = true;
    waiting_.push_back(record->operation);
  }
  // All match. A name stays the follower of the one before it, so the chain needs no change.
  last_ = record;
  const std::span<const OperationPtr> fresh = std::span(waiting_).subspan(waited);
  const auto now = exact || waited == 0 ? Clock::now() : waiting_.front()->submitted;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    fresh[i]->input = requests[i].input.data;
    fresh[i]->output = requests[i].output.data;
    fresh[i]->stream = requests[i].stream;
    fresh[i]->start_again(now);
  }
  hand_out(fresh);
  return queued(waited == 0, others);
}

// It is submitted after the last one, and is expected there again.
void RequestQueue::follow(const OperationPtr& operation) {
  if (operation->handle == 0) return;  // a plan's, or the runtime's own
  NameRecord* const record = operation->record;
  if (last_ != nullptr) last_->next = record;
  last_ = record;
  // Not that of a name that comes once: it is to be used for the next name. Nor one that has a
  // result of its own, memory that the caller gives back with the handle.
  if (std::exchange(record->seen, true) && !has_own_result(*operation)) {
    record->operation = operation;
  }
}

NameRecord& RequestQueue::record_of(const Operation& operation) {
  const Request& request = operation.request;
  const auto same = [&](const RecordPtr& record) {
    return record->process_set == request.process_set && record->name == request.name;
  };
  if (RecordPtr* found = records_.find(operation.name_hash, same)) return **found;
  if (records_.size() >= keep_) forget_idle_names();
  auto fresh = std::make_unique<NameRecord>();
  fresh->process_set = request.process_set;
  fresh->name = request.name;
  fresh->hash = operation.name_hash;
  return *records_.insert(operation.name_hash, std::move(fresh));
}

// Names that do not come again must not stay for ever.
void RequestQueue::forget_idle_names() {
  last_ = nullptr;
  std::vector<RecordPtr> records = records_.take_all();
  for (RecordPtr& record : records) {
    if (!record->in_flight && record->prepared == 0) continue;
    record->next = nullptr;
    const std::uint64_t hash = record->hash;
    records_.insert(hash, std::move(record));
  }
  keep_ = std::max(kLeastKept, 2 * records_.size());
}

}  // namespace hora::collectives
