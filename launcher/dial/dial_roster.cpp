// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_roster.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kNamed = 16;  // of those that are missing, in one message

}  // namespace

const DialRoster::Member* DialRoster::find(const std::string& name) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& each) { return each.host.name == name; });
  return found == members_.end() ? nullptr : &*found;
}

const Host* DialRoster::find_wanted(const std::string& name) const {
  const auto found = std::find_if(wanted_.begin(), wanted_.end(),
                                  [&](const Host& each) { return each.name == name; });
  return found == wanted_.end() ? nullptr : &*found;
}

int DialRoster::joined_slots() const {
  int slots = 0;
  for (const Member& each : members_) slots += *each.host.slots;
  return slots;
}

// Two agents on one machine would each take its GPUs for their own, so none joins twice.
DialRoster::Verdict DialRoster::join(const std::string& name, const std::string& address,
                                     int slots) {
  if (complete()) {
    return {"", "the job runs with all of its hosts; one that is started again cannot join it"};
  }
  std::string known_as = name;
  const Host* wanted = nullptr;
  if (!wanted_.empty()) {
    // -H may list addresses.
    for (const std::string& each : {name, address}) {
      if (wanted == nullptr) wanted = find_wanted(known_as = each);
    }
    if (wanted == nullptr) {
      return {"", "neither " + name + " nor " + address + " is one of the job's hosts"};
    }
  }
  const Member* twin = find(known_as);
  if (twin != nullptr && wanted == nullptr && twin->address != address) {
    // Machines made from one image often have one name.
    twin = find(known_as = address);
  }
  if (twin != nullptr) return {"", known_as + " has joined already"};
  if (wanted != nullptr && wanted->slots) slots = *wanted->slots;
  members_.push_back({Host{known_as, "", slots}, address});
  return {known_as, ""};
}

void DialRoster::leave(const std::string& name) {
  members_.erase(std::remove_if(members_.begin(), members_.end(),
                                [&](const Member& each) { return each.host.name == name; }),
                 members_.end());
}

// More slots than asked for do no harm: the plan takes the first ones.
bool DialRoster::complete() const {
  return wanted_.empty() ? joined_slots() >= slots_ : members_.size() == wanted_.size();
}

std::size_t DialRoster::missing() const {
  return wanted_.size() - std::min(wanted_.size(), members_.size());
}

// The order is that of the ranks, so with a list of hosts it does not depend on which one was
// quicker.
std::vector<Host> DialRoster::hosts() const {
  std::vector<Host> out;
  if (wanted_.empty()) {
    for (const Member& each : members_) out.push_back(each.host);
  }
  for (const Host& each : wanted_) {
    if (const Member* member = find(each.name)) out.push_back(member->host);
  }
  return out;
}

// Read by people who look for the machine on which they have not typed the line yet.
std::string DialRoster::standing() const {
  if (wanted_.empty()) {
    return std::to_string(joined_slots()) + " of " + counted(slots_, "slot") +
           (members_.empty() ? "" : " (" + format_host_list(hosts()) + ")");
  }
  std::vector<std::string> missing;
  for (const Host& each : wanted_) {
    if (find(each.name) == nullptr) missing.push_back(each.name);
  }
  std::string text = std::to_string(members_.size()) + " of " + counted(wanted_.size(), "host");
  if (missing.empty()) return text;
  const bool one = missing.size() == 1;
  const std::size_t left_out = missing.size() > kNamed ? missing.size() - kNamed : 0;
  missing.resize(missing.size() - left_out);
  return text + "; " + hora::join(missing, ", ") +
         (left_out > 0 ? " and " + std::to_string(left_out) + " more" : "") +
         (one ? " is missing" : " are missing");
}

}  // namespace hora::launcher
