// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/progress_reporter.h"

#include "rendezvous/base/duration.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kSoon{50};
constexpr Milliseconds kLater{1'000};
constexpr int kSoonLooks = 1'200;  // for a minute: the ranks may never use the runtime

}  // namespace

void ProgressReporter::begin(int ranks) {
  ranks_ = ranks;
  look();
}

void ProgressReporter::stop() {
  loop_.cancel(timer_);
  timer_ = 0;
}

void ProgressReporter::look() {
  const FlightRecords::Progress now = records_.progress();
  if (now != sent_) {
    std::string payload;
    for (const int count : {now.meeting, now.joined, now.worked}) {
      append_u32(payload, static_cast<std::uint32_t>(count));
    }
    link_.send(FrameType::kProgress, payload);
    sent_ = now;
  }
  const bool rare = now.worked == ranks_ || ++looks_ > kSoonLooks;
  timer_ = loop_.call_after(rare ? kLater : kSoon, [this] { look(); });
}

}  // namespace hora::launcher
