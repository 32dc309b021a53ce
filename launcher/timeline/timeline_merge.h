// SPDX-License-Identifier: Apache-2.0
// horarun timeline merge: reads the ranks' files, writes one. Takes as long as the files do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Returns a line for the user. "-", like /dev/stdout, is standard output, which then is not used
// for that line. Errors name the file, and the line where there is one. A file of a rank that was
// killed is taken as far as it goes.
Result<std::string> merge_timelines(const std::vector<std::string>& paths,
                                    const std::string& output);

// The timelines of several ranks as one: every rank becomes a process of the picture, every tensor
// one of its threads, and all times are of rank 0's clock. Line by line.

// The data in the first event of a rank's file.
struct TimelineSource {
  int rank = 0;
  std::string hostname;
  std::int64_t start_ns = 0;  // the zero of its times, on rank 0's clock
};

// A line of a timeline without what separates it from the next; empty: it holds no event.
std::string_view timeline_event(std::string_view line);
// The source, when this event is the one that names it and its numbers are those of a rank.
std::optional<TimelineSource> read_timeline_source(std::string_view event);
// The event as the merged file has it, with times counted from `zero_ns`; nothing for one that has
// no place there. An error when it is no JSON object.
Result<std::optional<std::string>> merged_event(std::string_view event,
                                                const TimelineSource& source, std::int64_t zero_ns);

}  // namespace hora::launcher
