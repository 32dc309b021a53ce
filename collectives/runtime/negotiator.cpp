// SPDX-License-Identifier: Apache-2.0
// Requests travel to rank 0 and responses back, each either in full or as a number of the response
// cache. Every rank of a set learns the same responses in the same order, so all caches hold the
// same numbers without an exchange of their own; rank 0 alone may forget a number early, and then
// asks for the request in full (kInFull).
#include "collectives/runtime/negotiator.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "collectives/control/messages.h"
#include "collectives/negotiation/wire.h"

namespace hora::collectives {

namespace {

// How often a blocking flush checks whether the watchdog has found a silent rank.
constexpr std::chrono::milliseconds kLookOften{250};

}  // namespace

Negotiator::Negotiator(const Links& links) : links_(links) {
  if (!links_.world.coordinates()) return;
  coordinator_.emplace(links_.world.settings.size);
  others_ = links_.world.other_ranks();
}

AgreedOp Negotiator::agreed_op(const Response* known, std::unique_ptr<Response> made,
                               CacheId number) const {
  const Response* const response = known != nullptr ? known : made.get();
  const Request& agreed = response->agreed;
  const std::uint64_t hash = name_hash(agreed.process_set, agreed.name);
  ProcessSet* const set = links_.sets.find(agreed.process_set);
  // Looked up once, here: fusion, execution and the cache all ask for it.
  const Operation* const mine = set == nullptr ? nullptr : set->pending.find(hash, agreed.name);
  return {response, std::move(made), number, hash, mine};
}

namespace {

// 0: rank 0 has to be asked in full.
CacheId number_of(const ResponseCache& cache, const Operation& operation) {
  // A number never means anything else: a request that is submitted once more has the same one.
  if (cache.response_of(operation.asked_as) != nullptr) return operation.asked_as;
  // The record of the name remembers the last number, so a repeated tensor is found without
  // comparing shapes first.
  return operation.record->number = cache.find(operation.request, operation.record->number);
}

}  // namespace

void Negotiator::ask(std::span<OperationPtr> operations, bool taken_before) {
  if (ask_together(operations)) return;
  const auto now = Clock::now();
  ItemWriter wishes;
  ProcessSet* last = nullptr;
  std::vector<CacheId> numbers;  // as long as all are of one set
  numbers.reserve(operations.size());
  for (OperationPtr& operation : operations) {
    const Request& request = operation->request;
    // Operations come in long runs of one set; this saves the look-up for all but the first.
    if (last == nullptr || last->id != request.process_set) {
      numbers.clear();
      last = links_.sets.find(request.process_set);
      if (last == nullptr) {  // removed while the operation was on its way
        links_.queue.finish(operation, HORA_ABORTED, "the process set was removed");
        continue;
      }
    }
    ProcessSet& set = *last;
    if (!taken_before) links_.observer.taken(request, operation->submitted);
    operation->asked_as = number_of(set.cache, *operation);
    // Rank 0 asks itself without a message.
    if (coordinator_) {
      if (!taken_before) links_.observer.arrived(0, request);
      if (operation->asked_as == 0 ||
          !coordinator_->add_known(0, operation->asked_as,
                                   *set.cache.response_of(operation->asked_as), now)) {
        add_in_full(0, set, request, now);
      }
    } else if (operation->asked_as != 0) {
      wishes.by_number({set.id, operation->asked_as});
    } else {
      encode_request(wishes.in_full(), request);
    }
    if (operation->asked_as != 0) numbers.push_back(operation->asked_as);
    // A join waits independently of the others: it completes only when all ranks have joined, and
    // must not be found by name.
    if (request.action == Action::kJoin) {
      set.joining = std::move(operation);
    } else {
      set.pending.add(std::move(operation));
    }
  }
  if (last != nullptr && numbers.size() == operations.size()) {
    sequences_.keep(last->id, std::move(numbers), last->cache);
  }
  if (!wishes.empty()) {
    links_.mailbox.channel().send(0, control_message(ControlMessage::kRequests, wishes.take()));
  }
}

// Whether the numbers of the sequence still mean what they did.
bool Negotiator::holds(const Sequence& sequence) const {
  const ProcessSet* const set = links_.sets.find(sequence.process_set);
  return set != nullptr && set->cache.forgotten() == sequence.forgotten;
}

// All at once, if they were asked for in this order before. False: one by one.
bool Negotiator::ask_together(std::span<OperationPtr> operations) {
  if (operations.size() < Sequences::kShortest || links_.observer.wants_all()) return false;
  const Operation& first = *operations.front();
  const SequencePtr& sequence =
      sequences_.find(first.request.process_set, first.asked_as, operations.size());
  if (sequence == nullptr || !holds(*sequence)) return false;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    // The number of a request that is submitted once more: by which it was asked for before.
    if (operations[i]->asked_as != sequence->numbers[i] ||
        operations[i]->request.process_set != sequence->process_set) {
      return false;
    }
  }
  ProcessSet& set = *links_.sets.find(sequence->process_set);
  if (!set.pending.empty()) return false;
  if (coordinator_) {
    if (!coordinator_->add_together(0, sequence, Clock::now())) return false;
  } else {
    links_.mailbox.channel().send(0, control_message(ControlMessage::kRequests, sequence->message));
  }
  const std::size_t last = std::min(operations.size(), Observer::kLastTaken);
  for (const OperationPtr& each : operations.last(last)) {
    links_.observer.taken(each->request, each->submitted);
  }
  set.pending.add_together(operations, sequence);
  return true;
}

// Rank 0: that rank asks for a sequence that this rank asks for, too. False: look at each item.
bool Negotiator::add_together(int rank, std::string_view bytes, Clock::time_point now) {
  const SequencePtr& sequence = sequences_.find(bytes);
  return sequence != nullptr && holds(*sequence) && !links_.observer.wants_all() &&
         coordinator_->add_together(rank, sequence, now);
}

// Rank 0.
void Negotiator::add_in_full(int rank, const ProcessSet& set, Request request,
                             Clock::time_point now) {
  // Other ranks may have requested the same operation by its number.
  if (const CacheId number = set.cache.number_of(request.name); number != 0) {
    coordinator_->spell_out(set.id, number);
  }
  coordinator_->add(rank, std::move(request), now);
}

bool Negotiator::handle_requests(int rank, std::string_view bytes) {
  const auto now = Clock::now();
  if (coordinator_ && add_together(rank, bytes, now)) return true;
  ItemReader in(bytes);
  while (coordinator_) {
    const ItemReader::Next next = in.next();
    if (next == ItemReader::Next::kEnd) return true;
    if (next == ItemReader::Next::kMalformed) break;
    if (next == ItemReader::Next::kByNumber) {
      add_by_number(rank, in.reference(), now);
      continue;
    }
    Request request;
    if (!decode_request(in.in(), request)) break;
    links_.observer.arrived(rank, request);
    const ProcessSet* const set = links_.sets.find(request.process_set);
    // An unknown set was removed while the request travelled; the removal fails the operation
    // there.
    if (set != nullptr) add_in_full(rank, *set, std::move(request), now);
  }
  return false;
}

void Negotiator::add_by_number(int rank, const Reference& reference, Clock::time_point now) {
  const ProcessSet* const set = links_.sets.find(reference.process_set);
  if (set == nullptr) return;  // removed; the removal ends the operation on its rank
  const Response* const known = set->cache.response_of(reference.id);
  if (known != nullptr) {
    links_.observer.arrived(rank, known->agreed);
    if (coordinator_->add_known(rank, reference.id, *known, now)) return;
  }
  // The number was dropped to make room while this request was on its way. The rank still has the
  // operation and repeats it in full.
  WireWriter out;
  out.varint(static_cast<std::uint64_t>(reference.process_set));
  out.varint(reference.id);
  links_.mailbox.channel().send(rank, control_message(ControlMessage::kInFull, out.take()));
}

// Rank 0 has dropped a number in the meantime and asks for the request in full.
bool Negotiator::handle_in_full(std::string_view bytes) {
  WireReader in(bytes);
  ProcessSet* const set = links_.sets.find(static_cast<std::int32_t>(in.varint()));
  const CacheId id = in.varint();
  if (!in.ok()) return false;
  if (set == nullptr) return true;
  // None: the operation ended meanwhile, with an error for its group, say.
  Operation* asked = nullptr;
  set->pending.each([&](const OperationPtr& operation) {
    if (operation->asked_as == id) asked = operation.get();
  });
  if (asked == nullptr) return true;
  asked->asked_as = 0;
  ItemWriter wish;
  encode_request(wish.in_full(), asked->request);
  links_.mailbox.channel().send(0, control_message(ControlMessage::kRequests, wish.take()));
  return true;
}

// True if ready operations wait to share a step with others that will be ready soon.
bool Negotiator::wait_for_more() {
  gathering_until_.reset();
  const Parameters& parameters = links_.tuner.parameters();
  if (parameters.cycle_time_us == 0) return false;
  gathering_until_ =
      coordinator_->wait_for_more(Clock::now(), std::chrono::microseconds(parameters.cycle_time_us),
                                  parameters.fusion_threshold_bytes);
  return gathering_until_.has_value();
}

std::vector<AgreedOp> Negotiator::take_ready() {
  std::vector<AgreedOp> list;
  if (!coordinator_ || wait_for_more()) return list;
  std::vector<Coordinator::Ready> ready = coordinator_->take_ready();
  if (ready.empty()) return list;
  for (const auto& [id, set] : links_.sets) set->cache.let_go();
  // One more for a change of parameters.
  list.reserve(ready.size() + 1);
  // First in the list, so that all ranks change between the same two operations.
  if (auto change = links_.tuner.take_change()) {
    list.push_back(agreed_op(nullptr, std::move(change), 0));
  }
  for (Coordinator::Ready& each : ready) {
    list.push_back(agreed_op(each.known, std::move(each.made), each.number));
  }
  // All others get their responses before this rank starts to execute, which may block.
  announce(list);
  for (AgreedOp& each : list) take_own_column(each);
  return list;
}

SequencePtr Negotiator::take_ready_together() {
  // While rank 0 searches for parameters, it measures each reduction.
  if (!coordinator_ || links_.tuner.searching() || wait_for_more()) return nullptr;
  SequencePtr sequence = coordinator_->take_ready_together();
  if (sequence == nullptr) return nullptr;
  ProcessSet& set = *links_.sets.find(sequence->process_set);
  set.cache.learn_again(sequence->numbers, sequence->learned);
  sequence->learned = set.cache.learned();
  if (links_.world.settings.size == 1) return sequence;
  std::vector<std::int32_t> others = set.ranks;
  std::erase(others, 0);
  send_responses(others, sequence->message);
  flush();
  return sequence;
}

SequencePtr Negotiator::answered_together(std::string_view bytes) {
  const SequencePtr& sequence = sequences_.find(bytes);
  if (sequence == nullptr || !holds(*sequence)) return nullptr;
  ProcessSet& set = *links_.sets.find(sequence->process_set);
  if (set.pending.together() != sequence) return nullptr;
  set.cache.learn_again(sequence->numbers, sequence->learned);
  sequence->learned = set.cache.learned();
  return sequence;
}

std::vector<AgreedOp> Negotiator::members(const Sequence& sequence) const {
  std::vector<AgreedOp> list;
  list.reserve(sequence.numbers.size());
  for (std::size_t i = 0; i < sequence.numbers.size(); ++i) {
    list.push_back(agreed_op(sequence.responses[i], nullptr, sequence.numbers[i]));
  }
  return list;
}

// Adds the coordinator's own column to the response of an alltoall.
void Negotiator::take_own_column(AgreedOp& each) {
  if (each.response->all_splits.empty()) return;
  const ProcessSet* const set = links_.sets.find(each.response->agreed.process_set);
  if (set == nullptr || set->index < 0) return;
  if (each.made == nullptr) {  // the cache keeps what all ranks get
    each.made = std::make_unique<Response>(*each.response);
    each.response = each.made.get();
  }
  const auto size = static_cast<std::size_t>(set->size());
  for (std::size_t sender = 0; sender < size; ++sender) {
    each.made->numbers.push_back(
        each.made->all_splits[sender * size + static_cast<std::size_t>(set->index)]);
  }
}

// Sends every other rank the responses of its sets. The kernel must have them before this rank
// executes them, or the others could not take part.
void Negotiator::announce(std::vector<AgreedOp>& list) {
  if (links_.world.settings.size == 1) return;
  bool same_for_all = true;
  for (AgreedOp& each : list) {
    ProcessSet* const set = links_.sets.find(each.response->agreed.process_set);
    if (set != nullptr) learn(*set, each);
    // An alltoall in full has a different column for each rank; sets other than the world have
    // fewer ranks. In all other cases one encoding serves every rank.
    same_for_all = same_for_all && each.response->agreed.process_set == 0 &&
                   (each.number != 0 || each.response->all_splits.empty());
  }
  if (same_for_all) {
    send_responses(others_, encode_responses_for(1, list));
  } else {
    // The ranks of a process set get the same: one message for all of them.
    std::unordered_map<std::string, std::vector<std::int32_t>> by_bytes;
    for (const std::int32_t rank : others_) {
      by_bytes[encode_responses_for(rank, list)].push_back(rank);
    }
    for (const auto& [bytes, ranks] : by_bytes) send_responses(ranks, bytes);
  }
  flush();
}

void Negotiator::flush() {
  // A rank that does not read is slow, not lost, unless the watchdog reports it.
  while (!links_.mailbox.channel().flush(-1, Clock::now() + kLookOften) &&
         links_.interruption.silent_ranks().empty() && !links_.interruption.stop_reason()) {
  }
}

void Negotiator::send_responses(const std::vector<std::int32_t>& ranks,
                                const std::string& bytes) const {
  if (bytes.empty()) return;
  links_.mailbox.channel().send_to_all(ranks, control_message(ControlMessage::kResponses, bytes));
}

// Rank 0: decides by which number the response is sent, if it has one.
void Negotiator::learn(ProcessSet& set, AgreedOp& each) {
  // Learning an earlier response of this list may have dropped the number.
  if (set.cache.response_of(each.number) == nullptr) each.number = set.cache.find(*each.response);
  const Request* const mine = newly_asked(each);
  if (each.number != 0) {
    // Keeps the number from being the next to be dropped; every rank does the same on receipt.
    set.cache.learn_again(each.number, mine);
  } else {
    // Learning may drop an old number; ranks that were counted for it are entered in full first.
    set.cache.learn(*each.response, mine, [&](CacheId id) { coordinator_->spell_out(set.id, id); });
  }
}

// This rank's own request. Null if it takes no part or requested by the same number.
const Request* Negotiator::newly_asked(const AgreedOp& each) {
  if (each.mine == nullptr || (each.number != 0 && each.mine->asked_as == each.number)) {
    return nullptr;
  }
  return &each.mine->request;
}

std::string Negotiator::encode_responses_for(int rank, const std::vector<AgreedOp>& list) const {
  ItemWriter items;
  for (const AgreedOp& each : list) {
    const std::int32_t id = each.response->agreed.process_set;
    const ProcessSet* const set = links_.sets.find(id);
    if (set == nullptr) continue;
    const auto& ranks = set->ranks;
    const auto member = std::find(ranks.begin(), ranks.end(), rank);
    if (member == ranks.end()) continue;
    if (each.number != 0) {
      items.by_number({id, each.number});
    } else {
      encode_response(items.in_full(), *each.response, static_cast<int>(member - ranks.begin()));
    }
  }
  return items.empty() ? std::string() : items.take();
}

std::optional<std::vector<AgreedOp>> Negotiator::handle_responses(std::string_view bytes) {
  for (const auto& [id, set] : links_.sets) set->cache.let_go();
  ItemReader in(bytes);
  std::vector<AgreedOp> list;
  while (true) {
    const ItemReader::Next next = in.next();
    if (next == ItemReader::Next::kEnd) return list;
    if (next == ItemReader::Next::kMalformed) break;
    if (next == ItemReader::Next::kByNumber) {
      ProcessSet* const found = links_.sets.find(in.reference().process_set);
      if (found == nullptr) break;
      ResponseCache& cache = found->cache;
      const CacheId number = in.reference().id;
      const Response* known = cache.response_of(number);
      // Rank 0 answers only with numbers that this rank has learned: anything else is malformed.
      if (known == nullptr) break;
      list.push_back(agreed_op(known, nullptr, number));
      cache.learn_again(number, newly_asked(list.back()));
      continue;
    }
    auto response = std::make_unique<Response>();
    if (!decode_response(in.in(), *response)) break;
    list.push_back(agreed_op(nullptr, std::move(response), 0));
    const AgreedOp& each = list.back();
    ProcessSet* const found = links_.sets.find(each.response->agreed.process_set);
    // Coordinated for a set of which this rank is not a member (adding one).
    if (found == nullptr) continue;
    found->cache.learn(*each.response, newly_asked(each));
  }
  return std::nullopt;
}

}  // namespace hora::collectives
