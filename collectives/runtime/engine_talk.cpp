// What the ranks tell each other about operations: requests to rank 0, verdicts from it.
#include <algorithm>

#include "collectives/control/messages.h"
#include "collectives/negotiation/codec.h"
#include "collectives/runtime/engine.h"

namespace hora::collectives {

bool Engine::take_submissions() {
  std::vector<OperationPtr> operations = queue_.take();
  if (operations.empty()) return false;
  const auto now = Clock::now();
  std::vector<Wish> wishes;
  for (OperationPtr& operation : operations) {
    const auto found = sets_.find(operation->request.process_set);
    if (found == sets_.end()) {  // removed while the operation was on its way
      finish(operation, HORA_ABORTED, "the process set was removed");
      continue;
    }
    ProcessSet& set = *found->second;
    const Request& request = operation->request;
    observer_.taken(request, operation->submitted);
    if (coordinator_) {
      observer_.arrived(0, request);
      coordinator_->add(0, request, now);
    } else if ((operation->asked_as = set.cache.find(request)) != 0) {
      wishes.emplace_back(Reference{set.id, operation->asked_as});
    } else {
      wishes.emplace_back(request);
    }
    if (request.action == Action::kJoin) {
      set.joining = std::move(operation);
    } else {
      set.pending[request.name] = std::move(operation);
    }
  }
  if (!wishes.empty()) {
    channel_->send(0, control_message(ControlMessage::kRequests, encode_wishes(wishes)));
  }
  return true;
}

void Engine::handle_requests(int rank, std::string_view bytes) {
  auto wishes = decode_wishes(bytes);
  if (!wishes || !coordinator_) {
    return give_up(name_rank(rank) + " sent a malformed control message");
  }
  const auto now = Clock::now();
  for (Wish& wish : *wishes) {
    if (const auto* reference = std::get_if<Reference>(&wish)) {
      const auto found = sets_.find(reference->process_set);
      if (found == sets_.end()) continue;  // removed; the removal ends the operation on its rank
      const auto& ranks = found->second->ranks;
      const auto member = std::find(ranks.begin(), ranks.end(), rank);
      auto request = found->second->cache.request_of(
          reference->id, member == ranks.end() ? -1 : static_cast<int>(member - ranks.begin()));
      if (!request) {
        WireWriter out;
        out.varint(static_cast<std::uint64_t>(reference->process_set));
        out.varint(reference->id);
        channel_->send(rank, control_message(ControlMessage::kInFull, out.take()));
        continue;
      }
      wish = std::move(*request);
    }
    auto& request = std::get<Request>(wish);
    observer_.arrived(rank, request);
    coordinator_->add(rank, std::move(request), now);
  }
}

// Rank 0 has forgotten a number in the meantime.
void Engine::ask_in_full(std::string_view bytes) {
  WireReader in(bytes);
  const auto found = sets_.find(static_cast<std::int32_t>(in.varint()));
  const CacheId id = in.varint();
  if (!in.ok()) return give_up("rank 0 sent a malformed control message");
  if (found == sets_.end()) return;
  for (auto& [name, operation] : found->second->pending) {
    if (operation->asked_as != id) continue;
    operation->asked_as = 0;
    channel_->send(0,
                   control_message(ControlMessage::kRequests, encode_wishes({operation->request})));
    return;
  }
}

// What an alltoall's verdict says to the coordinator itself.
void Engine::take_own_column(Verdict& verdict) {
  if (verdict.all_splits.empty()) return;
  const auto set = sets_.find(verdict.agreed.process_set);
  if (set == sets_.end() || set->second->index < 0) return;
  const auto size = static_cast<std::size_t>(set->second->size());
  for (std::size_t sender = 0; sender < size; ++sender) {
    verdict.numbers.push_back(
        verdict.all_splits[sender * size + static_cast<std::size_t>(set->second->index)]);
  }
}

// Every other rank gets the verdicts of its sets. They must be with the kernel before this rank
// runs them: the others could not take part otherwise.
void Engine::announce(const std::vector<Verdict>& verdicts) {
  if (world_.settings.size == 1) return;
  std::vector<CacheId> numbers;  // by verdict; 0: in full
  bool same_for_all = true;
  for (const Verdict& verdict : verdicts) {
    const auto set = sets_.find(verdict.agreed.process_set);
    numbers.push_back(set == sets_.end() ? 0 : learn(*set->second, verdict));
    same_for_all = same_for_all && verdict.agreed.process_set == 0 &&
                   (numbers.back() != 0 || verdict.all_splits.empty());
  }
  std::string bytes;
  for (int rank = 1; rank < world_.settings.size; ++rank) {
    if (rank == 1 || !same_for_all) bytes = encode_verdicts_for(rank, verdicts, numbers);
    if (!bytes.empty()) channel_->send(rank, control_message(ControlMessage::kVerdicts, bytes));
  }
  // A rank that does not read is slow or stopped, not lost: that shows elsewhere.
  static_cast<void>(channel_->flush(-1, Deadline::max()));
}

// Rank 0: the number by which the verdict is told, if it has one.
CacheId Engine::learn(ProcessSet& set, const Verdict& verdict) {
  const CacheId id = set.cache.find(verdict);
  if (id != 0) {
    set.cache.learn_again(id, nullptr);
  } else {
    set.cache.learn(verdict, nullptr);
  }
  return id;
}

std::string Engine::encode_verdicts_for(int rank, const std::vector<Verdict>& verdicts,
                                        const std::vector<CacheId>& numbers) {
  ItemWriter list;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Verdict& verdict = verdicts[i];
    const auto set = sets_.find(verdict.agreed.process_set);
    if (set == sets_.end()) continue;
    const auto& ranks = set->second->ranks;
    const auto member = std::find(ranks.begin(), ranks.end(), rank);
    if (member == ranks.end()) continue;
    if (numbers[i] != 0) {
      list.by_number({verdict.agreed.process_set, numbers[i]});
    } else {
      encode_verdict(list.in_full(), verdict, static_cast<int>(member - ranks.begin()));
    }
  }
  return list.empty() ? std::string() : list.take();
}

void Engine::handle_verdicts(std::string_view bytes) {
  ItemReader in(bytes);
  std::vector<Verdict> verdicts;
  while (true) {
    const ItemReader::Next next = in.next();
    if (next == ItemReader::Next::kEnd) return carry_out(verdicts);
    if (next == ItemReader::Next::kMalformed) break;
    Verdict verdict;
    const bool in_full = next == ItemReader::Next::kInFull;
    if (in_full && !decode_verdict(in.in(), verdict)) break;
    const auto found =
        sets_.find(in_full ? verdict.agreed.process_set : in.reference().process_set);
    if (found == sets_.end()) {
      if (!in_full) break;
    } else {
      ProcessSet& set = *found->second;
      const auto request_of = [&](const std::string& name) -> const Request* {
        const auto pending = set.pending.find(name);
        return pending == set.pending.end() ? nullptr : &pending->second->request;
      };
      if (in_full) {
        set.cache.learn(verdict, request_of(verdict.agreed.name));
      } else {
        const Verdict* known = set.cache.verdict_of(in.reference().id);
        if (known == nullptr) break;
        verdict = *known;
        set.cache.learn_again(in.reference().id, request_of(verdict.agreed.name));
      }
    }
    verdicts.push_back(std::move(verdict));
  }
  give_up("rank 0 sent a malformed verdict");
}

}  // namespace hora::collectives
