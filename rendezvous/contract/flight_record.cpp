// SPDX-License-Identifier: Apache-2.0
// Reads a page that another process writes, or wrote until it was killed. Nothing in it can be
// trusted: every text may lack its end, every number may be anything, and a note may be half
// written (odd stamp).
#include "rendezvous/contract/flight_record.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace hora::rendezvous {

namespace {

// A field that may lack its end, with whatever a terminal should not get replaced.
template <std::size_t kSize>
std::string field_text(const char (&field)[kSize]) {
  std::string text(field, std::find(field, field + kSize, '\0'));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

bool is_whole(const FlightNote& note) { return note.stamp != 0 && note.stamp % 2 == 0; }

std::string operation_text(const FlightNote& note) {
  std::string text = field_text(note.operation);
  const std::string name = field_text(note.name);
  if (!name.empty()) text += " '" + name + "'";
  if (note.tensors > 1) text += " and " + std::to_string(note.tensors - 1) + " more";
  return text;
}

// The page may hold any number: it wraps around rather than overflows.
std::int64_t ns_since(std::int64_t then_ns, std::int64_t now_ns) {
  const auto ns = static_cast<std::int64_t>(static_cast<std::uint64_t>(now_ns) -
                                            static_cast<std::uint64_t>(then_ns));
  return std::max<std::int64_t>(ns, 0);
}

std::string time_since(std::int64_t then_ns, std::int64_t now_ns) {
  const double seconds = static_cast<double>(ns_since(then_ns, now_ns)) / 1e9;
  char text[48];
  std::snprintf(text, sizeof text, seconds < 0.1 ? "%.3f s" : "%.1f s", seconds);
  return text;
}

std::optional<FlightPage> read_page(std::string_view bytes) {
  FlightPage page;
  if (bytes.size() < sizeof page) return std::nullopt;
  // A copy: the writer may still change the page.
  std::memcpy(&page, bytes.data(), sizeof page);
  if (page.magic != kFlightMagic) return std::nullopt;
  return page;
}

// The one that has lasted longest, else the newest. A note that was being written is passed over,
// here and below.
const FlightNote* current_step(const FlightPage& page) {
  const FlightNote* newest = nullptr;
  const FlightNote* oldest_open = nullptr;
  for (const FlightNote& note : page.steps) {
    if (!is_whole(note)) continue;
    if (newest == nullptr || note.stamp > newest->stamp) newest = &note;
    if (note.ended_ns == 0 && (oldest_open == nullptr || note.stamp < oldest_open->stamp)) {
      oldest_open = &note;
    }
  }
  return oldest_open != nullptr ? oldest_open : newest;
}

const FlightNote* oldest_unanswered(const FlightPage& page) {
  const FlightNote* oldest = nullptr;
  for (const FlightNote& note : page.asked) {
    if (!is_whole(note) || note.ended_ns != 0) continue;
    if (oldest == nullptr || note.stamp < oldest->stamp) oldest = &note;
  }
  return oldest;
}

}  // namespace

std::optional<int> flight_rank(std::string_view bytes) {
  const auto page = read_page(bytes);
  if (!page || page->state == FlightState::kUnused) return std::nullopt;
  return page->rank;
}

std::optional<FlightCounters> flight_counters(std::string_view bytes, std::int64_t now_ns) {
  const auto page = read_page(bytes);
  if (!page || page->state == FlightState::kUnused) return std::nullopt;
  constexpr std::uint64_t kMost = 1'000'000'000'000'000'000;  // 31 years of nanoseconds
  FlightCounters counters;
  counters.collectives = static_cast<std::int64_t>(std::min(page->collectives, kMost));
  counters.bytes = static_cast<std::int64_t>(std::min(page->bytes, kMost));
  std::uint64_t waited = std::min(page->waited_ns, kMost);
  if (page->waiting_since_ns > 0) {
    waited += static_cast<std::uint64_t>(ns_since(page->waiting_since_ns, now_ns));
  }
  counters.waited_ns = static_cast<std::int64_t>(std::min(waited, kMost));
  std::int64_t newest = 0;
  for (const FlightNote& note : page->steps) {
    if (is_whole(note)) newest = std::max(newest, note.ended_ns);
  }
  counters.last_ended_ns = newest > 0 ? ns_since(newest, now_ns) : -1;
  FlightGpus& gpus = counters.gpus = page->gpus;
  gpus.percent = std::clamp(gpus.percent, -1, 100);
  for (std::uint64_t* each :
       {&gpus.used_bytes, &gpus.total_bytes, &gpus.peak_bytes, &gpus.percent_sum, &gpus.samples}) {
    *each = std::min(*each, kMost);
  }
  return counters;
}

std::string lost_record(std::string_view bytes) {
  const auto page = read_page(bytes);
  return page ? field_text(page->lost_record) : std::string();
}

std::optional<std::int64_t> left_for_ns(std::string_view bytes, std::int64_t now_ns) {
  const auto page = read_page(bytes);
  if (!page || page->state != FlightState::kLeft) return std::nullopt;
  return ns_since(page->since_ns, now_ns);
}

std::optional<FlightStanding> read_flight(std::string_view bytes, std::int64_t now_ns) {
  const auto page = read_page(bytes);
  if (!page || page->state == FlightState::kUnused) return std::nullopt;
  FlightStanding standing;
  standing.state = page->state;
  standing.for_ns = ns_since(page->since_ns, now_ns);
  standing.process_sets = page->process_sets;
  const FlightNote* newest_ended = nullptr;
  std::vector<const FlightNote*> open;
  const auto look_at = [&](const FlightNote& note, bool is_step) {
    if (!is_whole(note)) return;
    // Stamps only grow: a rank whose largest stamp stays the same makes no progress.
    standing.activity = std::max(standing.activity, note.stamp);
    if (note.ended_ns == 0) {
      open.push_back(&note);
    } else if (is_step && (newest_ended == nullptr || note.ended_ns > newest_ended->ended_ns)) {
      newest_ended = &note;
    }
  };
  for (const FlightNote& note : page->steps) look_at(note, true);
  // Those before this index run; those after it wait for other ranks.
  const auto first_asked = static_cast<std::ptrdiff_t>(open.size());
  for (const FlightNote& note : page->asked) look_at(note, false);
  for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(open.size()); ++i) {
    const FlightNote& note = *open[static_cast<std::size_t>(i)];
    standing.operations.push_back(
        {operation_text(note), i < first_asked, ns_since(note.began_ns, now_ns), note.process_set});
  }
  std::stable_sort(standing.operations.begin(), standing.operations.end(),
                   [](const auto& a, const auto& b) { return a.for_ns > b.for_ns; });
  if (newest_ended != nullptr) {
    standing.last = operation_text(*newest_ended);
    standing.last_ended_ns = ns_since(newest_ended->ended_ns, now_ns);
  }
  return standing;
}

std::string describe_flight(std::string_view bytes, std::int64_t now_ns) {
  const auto page = read_page(bytes);
  if (page && page->state == FlightState::kJoining) {
    return "was connecting to the other ranks for " + time_since(page->since_ns, now_ns);
  }
  if (!page || page->state != FlightState::kRunning) return {};
  const FlightNote* step = current_step(*page);
  if (step != nullptr && step->ended_ns == 0) {
    return "was in " + operation_text(*step) + " for " + time_since(step->began_ns, now_ns);
  }
  if (const FlightNote* asked = oldest_unanswered(*page)) {
    return "had waited for other ranks in " + operation_text(*asked) + " for " +
           time_since(asked->began_ns, now_ns);
  }
  if (step == nullptr) return "had joined the job and run no collective yet";
  return "was in no collective; its last, " + operation_text(*step) + ", had ended " +
         time_since(step->ended_ns, now_ns) + " before";
}

}  // namespace hora::rendezvous
