// SPDX-License-Identifier: Apache-2.0
#include "launcher/timeline/timeline_merge.h"

#include <cstdint>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

constexpr std::string_view kHead =
    R"({"ph":"M","name":"hora","pid":0,"args":{"rank":3,"size":4,"hostname":"b","start_ns":5000000,)"
    R"("clock_offset_ns":-1000000,"clock_error_ns":40}})";

std::string merged(std::string_view event, std::int64_t zero_ns = 0) {
  const auto source = read_timeline_source(kHead);
  REQUIRE(source);
  const auto result = merged_event(event, *source, zero_ns);
  REQUIRE(result);
  return result->value_or("nothing");
}

TEST_CASE("An event of a timeline is found in its line") {
  CHECK(timeline_event(R"({"a":1},)") == R"({"a":1})");
  CHECK(timeline_event(R"(,{"a":1}   )") == R"({"a":1})");
  CHECK(timeline_event("[").empty());
  CHECK(timeline_event("]").empty());
  CHECK(timeline_event("     ").empty());
}

TEST_CASE("The head of a file has its rank and its zero on rank 0's clock") {
  const auto source = read_timeline_source(kHead);
  REQUIRE(source);
  CHECK(source->rank == 3);
  CHECK(source->hostname == "b");
  CHECK(source->start_ns == 6'000'000);
  CHECK_FALSE(read_timeline_source(R"({"ph":"B","name":"x"})"));
  CHECK_FALSE(read_timeline_source("{"));
}

TEST_CASE("Ranks become processes, tensors threads, times one clock") {
  CHECK(merged(R"({"ph":"B","ts":1.5,"name":"ALLREDUCE","pid":7})", 2'000'000) ==
        R"({"ph":"B","ts":4001.5,"name":"ALLREDUCE","pid":3,"tid":7})");
  CHECK(merged(R"({"ph":"i","ts":2,"name":"CYCLE_START","s":"g"})", 6'000'000) ==
        R"({"ph":"i","ts":2.0,"name":"CYCLE_START","s":"p","pid":3})");
  CHECK(merged(R"({"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 3"}})") ==
        R"json({"ph":"M","name":"process_name","pid":3,"args":{"name":"rank 3 (b)"}})json");
  CHECK(merged(R"({"ph":"M","name":"process_name","pid":7,"args":{"name":"w \"1\""}})") ==
        R"({"ph":"M","name":"thread_name","pid":3,"tid":7,"args":{"name":"w \"1\""}})");
  CHECK(merged(R"({"ph":"M","name":"process_sort_index","pid":7,"args":{"sort_index":7}})") ==
        R"({"ph":"M","name":"thread_sort_index","pid":3,"tid":7,"args":{"sort_index":7}})");
}

TEST_CASE("A head whose numbers are not those of a rank is refused") {
  const auto head = [](const std::string& numbers) {
    return read_timeline_source(R"({"ph":"M","name":"hora","args":{)" + numbers + "}}");
  };
  CHECK(head(R"("rank":1)"));
  CHECK_FALSE(head(R"("rank":4294967296)"));
  CHECK_FALSE(head(R"("rank":1,"start_ns":-9223372036854775808,"clock_offset_ns":1)"));
}

TEST_CASE("Times that are too far apart for a number of nanoseconds are still in order") {
  const TimelineSource late{0, "", INT64_MAX};
  const auto event = merged_event(R"({"ph":"B","ts":0})", late, INT64_MIN);
  REQUIRE(event);
  CHECK(event->value_or("").find(R"("ts":1.844674407)") != std::string::npos);
}

TEST_CASE("An event that is nested too deep for the stack is an error") {
  const std::string deep = R"({"ph":"M","name":"x","ts":1,"args":{"a":)" +
                           std::string(200'000, '[') + std::string(200'000, ']') + "}}";
  const auto source = read_timeline_source(kHead);
  CHECK_FALSE(merged_event(deep, *source, 0));
  CHECK_FALSE(read_timeline_source(deep));
  CHECK(merged(R"({"ph":"i","ts":6000,"name":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[[["})")
            .find("nothing") == std::string::npos);
}

TEST_CASE("A line that was cut off is an error, not an event") {
  const auto source = read_timeline_source(kHead);
  CHECK_FALSE(merged_event(R"({"ph":"B","ts":1)", *source, 0));
}

}  // namespace
}  // namespace hora::launcher
