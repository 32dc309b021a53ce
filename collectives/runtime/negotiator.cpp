#include "collectives/runtime/negotiator.h"

#include <algorithm>
#include <utility>

#include "collectives/control/messages.h"
#include "collectives/negotiation/codec.h"

namespace hora::collectives {

namespace {

constexpr std::chrono::milliseconds kLookOften{250};

}  // namespace

Negotiator::Negotiator(const Links& links) : links_(links) {
  if (links_.world.coordinates()) coordinator_.emplace(links_.world.settings.size);
}

AgreedOp Negotiator::agreed_op(const Response* known, std::unique_ptr<Response> made,
                               CacheId number) const {
  const Response* const response = known != nullptr ? known : made.get();
  const Request& agreed = response->agreed;
  const std::uint64_t hash = name_hash(agreed.process_set, agreed.name);
  const ProcessSet* const set = links_.sets.find(agreed.process_set);
  const Operation* const mine = set == nullptr ? nullptr : set->find_pending(hash, agreed.name);
  return {response, std::move(made), number, hash, mine};
}

void Negotiator::ask(std::span<OperationPtr> operations, bool taken_before) {
  const auto now = Clock::now();
  ItemWriter wishes;
  ProcessSet* last = nullptr;
  for (OperationPtr& operation : operations) {
    const Request& request = operation->request;
    if (last == nullptr || last->id != request.process_set) {
      last = links_.sets.find(request.process_set);
      if (last == nullptr) {  // removed while the operation was on its way
        links_.queue.finish(operation, HORA_ABORTED, "the process set was removed");
        continue;
      }
    }
    ProcessSet& set = *last;
    if (!taken_before) links_.observer.taken(request, operation->submitted);
    operation->asked_as = set.cache.find(request, operation->record->number);
    operation->record->number = operation->asked_as;
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
    if (request.action == Action::kJoin) {
      set.joining = std::move(operation);
    } else {
      set.add_pending(std::move(operation));
    }
  }
  if (!wishes.empty()) {
    links_.mailbox.channel().send(0, control_message(ControlMessage::kRequests, wishes.take()));
  }
}

// Rank 0.
void Negotiator::add_in_full(int rank, const ProcessSet& set, Request request,
                             Clock::time_point now) {
  // Others may have asked for the same by its number.
  if (const CacheId number = set.cache.number_of(request.name); number != 0) {
    coordinator_->spell_out(set.id, number);
  }
  coordinator_->add(rank, std::move(request), now);
}

bool Negotiator::handle_requests(int rank, std::string_view bytes) {
  const auto now = Clock::now();
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
  WireWriter out;
  out.varint(static_cast<std::uint64_t>(reference.process_set));
  out.varint(reference.id);
  links_.mailbox.channel().send(rank, control_message(ControlMessage::kInFull, out.take()));
}

// Rank 0 has forgotten a number in the meantime.
bool Negotiator::handle_in_full(std::string_view bytes) {
  WireReader in(bytes);
  ProcessSet* const set = links_.sets.find(static_cast<std::int32_t>(in.varint()));
  const CacheId id = in.varint();
  if (!in.ok()) return false;
  if (set == nullptr) return true;
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

// What is ready is to share a step with what comes soon.
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
  list.reserve(ready.size() + 1);
  // What is told next runs with the parameters that are told with it.
  if (auto change = links_.tuner.take_change()) {
    list.push_back(agreed_op(nullptr, std::move(change), 0));
  }
  for (Coordinator::Ready& each : ready) {
    list.push_back(agreed_op(each.known, std::move(each.made), each.number));
  }
  announce(list);
  for (AgreedOp& each : list) take_own_column(each);
  return list;
}

// What an alltoall's response says to the coordinator itself.
void Negotiator::take_own_column(AgreedOp& each) {
  if (each.response->all_splits.empty()) return;
  const ProcessSet* const set = links_.sets.find(each.response->agreed.process_set);
  if (set == nullptr || set->index < 0) return;
  if (each.made == nullptr) {  // the cache keeps what all are told
    each.made = std::make_unique<Response>(*each.response);
    each.response = each.made.get();
  }
  const auto size = static_cast<std::size_t>(set->size());
  for (std::size_t sender = 0; sender < size; ++sender) {
    each.made->numbers.push_back(
        each.made->all_splits[sender * size + static_cast<std::size_t>(set->index)]);
  }
}

// Every other rank gets the responses of its sets. They must be with the kernel before this rank
// runs them: the others could not take part otherwise.
void Negotiator::announce(std::vector<AgreedOp>& list) {
  if (links_.world.settings.size == 1) return;
  bool same_for_all = true;
  for (AgreedOp& each : list) {
    ProcessSet* const set = links_.sets.find(each.response->agreed.process_set);
    if (set != nullptr) learn(*set, each);
    same_for_all = same_for_all && each.response->agreed.process_set == 0 &&
                   (each.number != 0 || each.response->all_splits.empty());
  }
  std::string bytes;
  for (int rank = 1; rank < links_.world.settings.size; ++rank) {
    if (rank == 1 || !same_for_all) bytes = encode_responses_for(rank, list);
    if (bytes.empty()) continue;
    links_.mailbox.channel().send(rank, control_message(ControlMessage::kResponses, bytes));
  }
  // A rank that does not read is slow, not lost; unless the watchdog misses it.
  while (!links_.mailbox.channel().flush(-1, Clock::now() + kLookOften) &&
         links_.interruption.silent_ranks().empty() && !links_.interruption.stop_reason()) {
  }
}

// Rank 0: by which number it is told, if it has one.
void Negotiator::learn(ProcessSet& set, AgreedOp& each) {
  // A number can be forgotten for the sake of what is told before it.
  if (set.cache.response_of(each.number) == nullptr) each.number = set.cache.find(*each.response);
  const Request* const mine = newly_asked(each);
  if (each.number != 0) {
    set.cache.learn_again(each.number, mine);
  } else {
    set.cache.learn(*each.response, mine, [&](CacheId id) { coordinator_->spell_out(set.id, id); });
  }
}

// What this rank had asked for. Null when it takes no part, or has asked by the same number.
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
    if (found == nullptr) continue;
    found->cache.learn(*each.response, newly_asked(each));
  }
  return std::nullopt;
}

}  // namespace hora::collectives
