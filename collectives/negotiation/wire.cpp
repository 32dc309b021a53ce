// SPDX-License-Identifier: Apache-2.0
// [pure]
//
// texts: how many, then items until that many are there. An item is 2 * n + 1 for n more copies of
// the last text, or 2 * (length of the start that it shares with the last text), the length of the
// end that it shares with it, and what is between them.
#include "collectives/negotiation/wire.h"

#include <algorithm>

namespace hora::collectives {

void WireWriter::texts(const std::vector<std::string>& values) {
  varint(values.size());
  std::string_view last;
  for (std::size_t i = 0; i < values.size();) {
    const std::string_view value = values[i];
    std::size_t end = i;
    while (end < values.size() && values[end] == last) ++end;
    if (end > i) {
      varint(2 * (end - i) + 1);
      i = end;
      continue;
    }
    const std::size_t shorter = std::min(last.size(), value.size());
    std::size_t head = 0;
    while (head < shorter && last[head] == value[head]) ++head;
    std::size_t tail = 0;
    while (tail < shorter - head && last[last.size() - 1 - tail] == value[value.size() - 1 - tail])
      ++tail;
    varint(2 * head);
    varint(tail);
    text(value.substr(head, value.size() - head - tail));
    last = value;
    ++i;
  }
}

std::vector<std::string> WireReader::texts(std::size_t most) {
  std::vector<std::string> values;
  const std::uint64_t count = varint();
  if (count > most) fail();
  std::string last;
  while (ok_ && values.size() < count) {
    const std::uint64_t item = varint();
    if (item % 2 == 1) {
      if (item / 2 == 0 || item / 2 > count - values.size()) fail();
      values.insert(values.end(), ok_ ? item / 2 : 0, last);
      continue;
    }
    const std::uint64_t head = item / 2;
    const std::uint64_t tail = varint();
    if (head > last.size() || tail > last.size() - head) fail();
    if (!ok_) break;
    const std::string middle = text();
    last = last.substr(0, head) + middle + last.substr(last.size() - tail);
    values.push_back(last);
  }
  if (!ok_) values.clear();
  return values;
}

}  // namespace hora::collectives
