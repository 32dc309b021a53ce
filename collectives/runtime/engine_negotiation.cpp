// What the ranks tell each other about operations: requests to rank 0, responses from it.
#include <algorithm>

#include "collectives/control/messages.h"
#include "collectives/negotiation/codec.h"
#include "collectives/runtime/engine.h"

namespace hora::collectives {

namespace {

constexpr std::chrono::milliseconds kLookOften{250};

}  // namespace

bool Engine::take_submissions() {
  queue_.take(taken_);
  if (taken_.empty()) return false;
  if (taken_.size() == 1 && try_fast_path(*sets_.at(0), taken_.front())) return true;
  ask_rank_0(taken_, false);
  return true;
}

void Engine::ask_rank_0(std::span<OperationPtr> operations, bool taken_before) {
  const auto now = Clock::now();
  ItemWriter wishes;
  ProcessSet* last = nullptr;
  for (OperationPtr& operation : operations) {
    if (operation->request.action == Action::kShutdown) note_turn(operation->request);
    const Request& request = operation->request;
    if (last == nullptr || last->id != request.process_set) {
      const auto found = sets_.find(request.process_set);
      if (found == sets_.end()) {  // removed while the operation was on its way
        finish(operation, HORA_ABORTED, "the process set was removed");
        continue;
      }
      last = found->second.get();
    }
    ProcessSet& set = *last;
    if (!taken_before) observer_.taken(request, operation->submitted);
    operation->asked_as = set.cache.find(request, operation->record->number);
    operation->record->number = operation->asked_as;
    if (coordinator_) {
      if (!taken_before) observer_.arrived(0, request);
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
    channel_->send(0, control_message(ControlMessage::kRequests, wishes.take()));
  }
}

// Rank 0.
void Engine::add_in_full(int rank, const ProcessSet& set, Request request, Clock::time_point now) {
  // Others may have asked for the same by its number.
  if (const CacheId number = set.cache.number_of(request.name); number != 0) {
    coordinator_->spell_out(set.id, number);
  }
  coordinator_->add(rank, std::move(request), now);
}

void Engine::handle_requests(int rank, std::string_view bytes) {
  const auto now = Clock::now();
  ItemReader in(bytes);
  while (coordinator_) {
    const ItemReader::Next next = in.next();
    if (next == ItemReader::Next::kEnd) return;
    if (next == ItemReader::Next::kMalformed) break;
    if (next == ItemReader::Next::kByNumber) {
      add_by_number(rank, in.reference(), now);
      continue;
    }
    Request request;
    if (!decode_request(in.in(), request)) break;
    observer_.arrived(rank, request);
    const auto found = sets_.find(request.process_set);
    if (found != sets_.end()) add_in_full(rank, *found->second, std::move(request), now);
  }
  give_up(name_rank(rank) + " sent a malformed control message");
}

void Engine::add_by_number(int rank, const Reference& reference, Clock::time_point now) {
  const auto found = sets_.find(reference.process_set);
  if (found == sets_.end()) return;  // removed; the removal ends the operation on its rank
  const Response* const known = found->second->cache.response_of(reference.id);
  if (known != nullptr) {
    observer_.arrived(rank, known->agreed);
    if (coordinator_->add_known(rank, reference.id, *known, now)) return;
  }
  WireWriter out;
  out.varint(static_cast<std::uint64_t>(reference.process_set));
  out.varint(reference.id);
  channel_->send(rank, control_message(ControlMessage::kInFull, out.take()));
}

// Rank 0 has forgotten a number in the meantime.
void Engine::ask_in_full(std::string_view bytes) {
  WireReader in(bytes);
  const auto found = sets_.find(static_cast<std::int32_t>(in.varint()));
  const CacheId id = in.varint();
  if (!in.ok()) return give_up("rank 0 sent a malformed control message");
  if (found == sets_.end()) return;
  Operation* asked = nullptr;
  found->second->pending.each([&](const OperationPtr& operation) {
    if (operation->asked_as == id) asked = operation.get();
  });
  if (asked == nullptr) return;
  asked->asked_as = 0;
  ItemWriter wish;
  encode_request(wish.in_full(), asked->request);
  channel_->send(0, control_message(ControlMessage::kRequests, wish.take()));
}

// What an alltoall's response says to the coordinator itself.
void Engine::take_own_column(AgreedOp& each) {
  if (each.response->all_splits.empty()) return;
  const auto set = sets_.find(each.response->agreed.process_set);
  if (set == sets_.end() || set->second->index < 0) return;
  if (each.made == nullptr) {  // the cache keeps what all are told
    each.made = std::make_unique<Response>(*each.response);
    each.response = each.made.get();
  }
  const auto size = static_cast<std::size_t>(set->second->size());
  for (std::size_t sender = 0; sender < size; ++sender) {
    each.made->numbers.push_back(
        each.made->all_splits[sender * size + static_cast<std::size_t>(set->second->index)]);
  }
}

// Every other rank gets the responses of its sets. They must be with the kernel before this rank
// runs them: the others could not take part otherwise.
void Engine::announce(std::vector<AgreedOp>& list) {
  if (world_.settings.size == 1) return;
  bool same_for_all = true;
  for (AgreedOp& each : list) {
    const auto set = sets_.find(each.response->agreed.process_set);
    if (set != sets_.end()) learn(*set->second, each);
    same_for_all = same_for_all && each.response->agreed.process_set == 0 &&
                   (each.number != 0 || each.response->all_splits.empty());
  }
  std::string bytes;
  for (int rank = 1; rank < world_.settings.size; ++rank) {
    if (rank == 1 || !same_for_all) bytes = encode_responses_for(rank, list);
    if (!bytes.empty()) channel_->send(rank, control_message(ControlMessage::kResponses, bytes));
  }
  // A rank that does not read is slow, not lost; unless the watchdog misses it.
  while (!channel_->flush(-1, Clock::now() + kLookOften) && silent_ranks().empty() &&
         !stop_reason()) {
  }
}

// Rank 0: by which number it is told, if it has one.
void Engine::learn(ProcessSet& set, AgreedOp& each) {
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
const Request* Engine::newly_asked(const AgreedOp& each) {
  if (each.mine == nullptr || (each.number != 0 && each.mine->asked_as == each.number)) {
    return nullptr;
  }
  return &each.mine->request;
}

std::string Engine::encode_responses_for(int rank, const std::vector<AgreedOp>& list) {
  ItemWriter items;
  for (const AgreedOp& each : list) {
    const std::int32_t id = each.response->agreed.process_set;
    const auto set = sets_.find(id);
    if (set == sets_.end()) continue;
    const auto& ranks = set->second->ranks;
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

void Engine::handle_responses(std::string_view bytes) {
  for (auto& [id, set] : sets_) set->cache.let_go();
  ItemReader in(bytes);
  std::vector<AgreedOp> list;
  while (true) {
    const ItemReader::Next next = in.next();
    if (next == ItemReader::Next::kEnd) return carry_out(list);
    if (next == ItemReader::Next::kMalformed) break;
    if (next == ItemReader::Next::kByNumber) {
      const auto found = sets_.find(in.reference().process_set);
      if (found == sets_.end()) break;
      ResponseCache& cache = found->second->cache;
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
    const auto found = sets_.find(each.response->agreed.process_set);
    if (found == sets_.end()) continue;
    found->second->cache.learn(*each.response, newly_asked(each));
  }
  give_up("rank 0 sent a malformed response");
}

}  // namespace hora::collectives
