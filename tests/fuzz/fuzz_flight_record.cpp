// SPDX-License-Identifier: Apache-2.0
// The page that a rank writes about itself and its agent reads: any bytes give a line of text that
// a terminal can be given, or nothing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "rendezvous/contract/flight_record.h"

using namespace hora::rendezvous;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  bytes.resize(sizeof(FlightPage));  // what is missing is zero
  std::memcpy(bytes.data(), &kFlightMagic, sizeof kFlightMagic);
  (void)flight_rank(bytes);
  if (const auto standing = read_flight(bytes, 1'000'000'000)) {
    for (const FlightOperation& operation : standing->operations) {
      if (operation.for_ns < 0) std::abort();
    }
  }
  const std::string text = describe_flight(bytes, 1'000'000'000);
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) std::abort();
  }
  return 0;
}
