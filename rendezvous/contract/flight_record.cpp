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

std::string duration_text(std::int64_t ns) {
  const double seconds = static_cast<double>(std::max<std::int64_t>(ns, 0)) / 1e9;
  char text[48];
  std::snprintf(text, sizeof text, seconds < 0.1 ? "%.3f s" : "%.1f s", seconds);
  return text;
}

std::optional<FlightPage> read_page(std::string_view bytes) {
  FlightPage page;
  if (bytes.size() < sizeof page) return std::nullopt;
  std::memcpy(&page, bytes.data(), sizeof page);
  if (page.magic != kFlightMagic) return std::nullopt;
  return page;
}

// A note that was being written is passed over, here and below.
const FlightNote* newest_step(const FlightPage& page) {
  const FlightNote* newest = nullptr;
  for (const FlightNote& note : page.steps) {
    if (is_whole(note) && (newest == nullptr || note.stamp > newest->stamp)) newest = &note;
  }
  return newest;
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

std::string describe_flight(std::string_view bytes, std::int64_t now_ns) {
  const auto page = read_page(bytes);
  if (!page || page->state != FlightState::kRunning) return {};
  const FlightNote* step = newest_step(*page);
  if (step != nullptr && step->ended_ns == 0) {
    return "was in " + operation_text(*step) + " for " + duration_text(now_ns - step->began_ns);
  }
  if (const FlightNote* asked = oldest_unanswered(*page)) {
    return "had waited for other ranks in " + operation_text(*asked) + " for " +
           duration_text(now_ns - asked->began_ns);
  }
  if (step == nullptr) return "had joined the job and run no collective yet";
  return "was in no collective; its last, " + operation_text(*step) + ", had ended " +
         duration_text(now_ns - step->ended_ns) + " before";
}

}  // namespace hora::rendezvous
