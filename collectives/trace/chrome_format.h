// SPDX-License-Identifier: Apache-2.0
// Trace records as events of Chrome's trace format (a JSON array of objects), named as Horovod's
// timeline names them: every tensor is a process of the picture, with what happens to it nested.
// [pure]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/trace/timeline_record.h"

namespace hora::collectives {

// The writer of the file, and how its clock relates to that of rank 0.
struct TraceIdentity {
  int rank = 0;
  int size = 1;
  std::string hostname;
  std::int64_t start_ns = 0;         // of the monotonic clock: the zero of the file's times
  std::int64_t epoch_us = 0;         // the same moment, since 1970
  std::int64_t clock_offset_ns = 0;  // this host's monotonic clock minus rank 0's
  std::int64_t clock_error_ns = 0;   // the offset is known to within this
  bool mark_cycles = false;
};

class EventSink {
 public:
  virtual void event(std::string_view json) = 0;

 protected:
  ~EventSink() = default;
};

class ChromeFormat {
 public:
  ChromeFormat(TraceIdentity identity, EventSink& sink);

  // The events at the top of the file.
  void begin();
  void consume(const char* record);
  // An instant event on the whole trace, for people.
  void remark(std::string_view text, std::int64_t time_ns);
  // Time of the newest record so far.
  std::int64_t newest_ns() const { return newest_ns_; }

 private:
  enum class Phase { kIdle, kNegotiating, kAgreed, kRunning };
  struct Tensor {
    Phase phase = Phase::kIdle;
    TraceLabel label = TraceLabel::kAllreduce;
    std::int64_t agreed_ns = 0;
    std::string outcome;  // `,"args":{...}` of its end
  };

  Tensor& tensor(std::uint32_t number);
  void name_tensor(std::uint32_t number, std::string_view name);
  void set_shape(Tensor& tensor, std::uint32_t dtype, std::string_view shape);
  void start_negotiation(std::uint32_t number, TraceLabel label, std::int64_t time_ns);
  void agree(std::uint32_t number, TraceLabel label, std::int64_t time_ns);
  struct Step {
    std::vector<std::uint32_t> tensors;  // those that run in it
    int open_activities = 0;
  };
  Step& step(std::uint16_t place);
  void start_step(Step& step, std::string_view numbers, std::int64_t time_ns);
  void end_step(Step& step, bool good, std::int64_t time_ns);

  // Pieces of an event; the line is given to the sink by finish().
  void open(char phase, std::int64_t time_ns);
  void add_name(std::string_view name, std::string_view prefix = {});
  void add_process(std::uint32_t number);
  void finish();
  void emit(char phase, std::string_view name, std::uint32_t number, std::int64_t time_ns,
            std::string_view prefix = {});
  void emit_end(std::uint32_t number, std::int64_t time_ns, std::string_view arguments = {});

  TraceIdentity identity_;
  EventSink& sink_;
  std::vector<Tensor> tensors_;  // by number
  std::vector<Step> steps_;      // by place
  std::int64_t newest_ns_ = 0;
  std::string line_;
};

// Text inside a JSON string, cut to at most `most_bytes`; bytes that are not UTF-8 become U+FFFD.
std::string json_escaped(std::string_view text, std::size_t most_bytes);

}  // namespace hora::collectives
