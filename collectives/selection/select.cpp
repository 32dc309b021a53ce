// SPDX-License-Identifier: Apache-2.0
// All ranks must choose the same backend. So a decision uses only what all ranks know to be equal:
// the table, which they have agreed on, and the agreed request.
#include "collectives/selection/select.h"

#include <algorithm>

#include "collectives/types.h"

namespace hora::collectives {

namespace {

// Every condition of a row must hold for the query.
bool fits(const Capability& row, const SelectionQuery& query) {
  return row.operation == query.operation && (row.dtypes >> query.dtype & 1u) != 0 &&
         query.bytes >= row.least_bytes && query.bytes <= row.most_bytes &&
         (row.gpu != 0) == query.gpu && (row.across_hosts != 0 || query.one_host) &&
         (row.alone == 0 || query.set_size == 1);
}

// Ignores case and blanks, because users write these lists; two commas in a row add nothing.
std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> items;
  std::string item;
  for (char c : list + ",") {
    if (c == ',') {
      if (!item.empty()) items.push_back(item);
      item.clear();
    } else if (c != ' ') {
      item.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
  }
  return items;
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

std::optional<std::string> select_backend(const SelectionTable& table,
                                          const SelectionQuery& query) {
  const SelectionRow* best = nullptr;
  for (const SelectionRow& row : table) {
    if (!fits(row.capability, query)) continue;
    // Composed backends can be switched off (also by the autotuner) without a new table.
    if (!query.hierarchical && row.composed) continue;
    // ">" keeps the first of equals, which makes the order of the table part of the agreement.
    if (best == nullptr || row.capability.score > best->capability.score) best = &row;
  }
  if (best == nullptr) return std::nullopt;
  return best->backend;
}

std::vector<std::string> agree_on_backends(const std::vector<std::vector<std::string>>& usable,
                                           const std::string& wanted,
                                           const std::vector<std::string>& indispensable) {
  std::vector<std::string> agreed;
  if (usable.empty()) return agreed;
  std::vector<std::string> allowed;
  std::vector<std::string> refused;
  for (const std::string& item : split_list(wanted)) {
    // A leading minus refuses; everything else allows.
    if (item[0] == '-') {
      refused.push_back(item.substr(1));
    } else {
      allowed.push_back(item);
    }
  }
  // Only what every rank can use, in the first rank's order, which is the same for all.
  for (const std::string& id : usable.front()) {
    const bool everywhere = std::all_of(usable.begin(), usable.end(),
                                        [&](const auto& list) { return contains(list, id); });
    // Only a refusal removes what is indispensable: a list of other backends must not break sets of
    // one rank.
    const bool is_wanted = allowed.empty() || contains(allowed, id) || contains(indispensable, id);
    if (everywhere && is_wanted && !contains(refused, id)) {
      agreed.push_back(id);
    }
  }
  return agreed;
}

std::string unknown_backend(const std::string& wanted, const std::vector<std::string>& known) {
  for (const std::string& item : split_list(wanted)) {
    std::string id = item[0] == '-' ? item.substr(1) : item;
    if (!contains(known, id)) return id;
  }
  return {};
}

// One line per row, in the order of the table.
std::string format_table(const SelectionTable& table) {
  std::string text;
  for (const SelectionRow& row : table) {
    const Capability& capability = row.capability;
    text += std::string(operation_name(static_cast<hora_operation>(capability.operation)));
    // The two kinds of memory never mix in one row.
    text += capability.gpu != 0 ? " gpu" : " cpu";
    text += capability.dtypes == kAllDtypes ? " all dtypes" : " some dtypes";
    text += " " + std::to_string(capability.least_bytes) + "..";
    if (capability.most_bytes != INT64_MAX) text += std::to_string(capability.most_bytes);
    text += " bytes";
    if (capability.across_hosts == 0) text += " one host";
    if (capability.alone != 0) text += " one rank";
    text += ": " + row.backend + " (" + std::to_string(capability.score) + ")\n";
  }
  return text;
}

}  // namespace hora::collectives
