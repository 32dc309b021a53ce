// SPDX-License-Identifier: Apache-2.0
#include "collectives/trace/timeline.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "collectives/trace/record_ring.h"
#include "collectives/trace/recorder.h"
#include "collectives/trace/timeline_record.h"
#include "tests/support/catch.h"

using namespace hora::collectives;
using hora::Clock;

namespace {

class TemporaryFile {
 public:
  TemporaryFile() {
    const int fd = ::mkstemp(path_.data());
    REQUIRE(fd >= 0);
    ::close(fd);
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string text() const {
    std::ifstream in(path_);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }

 private:
  std::string path_ = "/tmp/hora-timeline-test-XXXXXX";
};

class Lines final : public EventSink {
 public:
  void event(std::string_view json) override { lines.emplace_back(json); }
  std::vector<std::string> lines;
};

// One record as the ring would give it.
std::string record(TraceRecord head, std::string_view payload = {}) {
  head.payload_bytes = static_cast<std::uint32_t>(payload.size());
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes.append(payload);
}

std::string numbers(const std::vector<std::uint32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]};
}

// What a reader of Chrome traces does with a file that was cut off: blanks and a comma at the end
// go, a missing bracket is added. Then the events, which are one to a line.
std::vector<std::string> read_events(std::string text) {
  const auto trim = [&](std::string_view unwanted) {
    text.resize(text.find_last_not_of(unwanted) + 1);
  };
  trim(" \n");
  if (!text.empty() && text.back() == ']') text.pop_back();
  trim(" \n,");
  REQUIRE(text.substr(0, 2) == "[\n");
  std::istringstream in(text.substr(2));
  std::vector<std::string> events;
  for (std::string line; std::getline(in, line);) {
    line.resize(line.find_last_not_of(" ,") + 1);
    if (line.empty()) continue;
    CHECK(line.front() == '{');
    CHECK(line.back() == '}');
    events.push_back(line);
  }
  return events;
}

Request allreduce(const std::string& name) {
  Request request;
  request.action = Action::kAllreduce;
  request.dtype = HORA_FLOAT32;
  request.name = name;
  request.shape = {3, 2};
  return request;
}

void run_one(Recorder& recorder, const std::string& name) {
  Response response;
  response.agreed = allreduce(name);
  const Response* const step[] = {&response};
  recorder.taken(response.agreed, Clock::now());
  recorder.arrived(0, response.agreed);
  recorder.agreed(step, Clock::now());
  recorder.step_begins(0, step, Clock::now());
  if (Activities* activities = recorder.activities(0)) {
    activities->begin("SHM_ALLREDUCE");
    activities->end();
  }
  recorder.step_ends(0, true, Clock::now());
}

}  // namespace

TEST_CASE("record ring: records of all lengths come out as they went in, around the end too") {
  RecordRing ring(1024);
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  for (int round = 0; round < 500; ++round) {
    for (std::uint32_t length = 8 + (sent % 23) * 8; char* place = ring.reserve(length);
         length = 8 + (sent % 23) * 8) {
      std::memset(place + 4, static_cast<int>(sent % 251), length - 4);
      ++sent;
    }
    CHECK_FALSE(ring.drain([](const char*) { FAIL("not committed"); }));
    ring.commit();
    ring.drain([&](const char* bytes) {
      std::uint32_t length = 0;
      std::memcpy(&length, bytes, sizeof length);
      REQUIRE(length == 8 + (received % 23) * 8);
      REQUIRE(bytes[4] == static_cast<char>(received % 251));
      REQUIRE(bytes[length - 1] == static_cast<char>(received % 251));
      ++received;
    });
    REQUIRE(received == sent);
    REQUIRE(ring.used() == 0);
  }
  CHECK(sent > 2000);
}

TEST_CASE("record ring: a reader on another thread gets everything in order") {
  RecordRing ring(4096);
  constexpr std::uint64_t kCount = 200'000;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      char* place = ring.reserve(16);
      if (place == nullptr) {
        std::this_thread::yield();
        continue;
      }
      std::memcpy(place + 8, &i, sizeof i);
      ring.commit();
      ++i;
    }
  });
  std::uint64_t expected = 0;
  bool ordered = true;
  while (expected < kCount) {
    ring.drain([&](const char* bytes) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes + 8, sizeof value);
      ordered = ordered && value == expected;
      ++expected;
    });
  }
  writer.join();
  CHECK(ordered);
}

TEST_CASE("trace file: closed after every flush, and no event crosses a page") {
  TemporaryFile file;
  auto trace = TraceFile::open(file.path(), 1 << 20);
  REQUIRE(trace);
  REQUIRE(trace->flush());
  CHECK(file.text() == "[\n\n]\n");
  std::size_t count = 0;
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i <= round % 7; ++i) {
      trace->append(R"({"n":)" + std::to_string(count++) + R"(,"x":")" +
                    std::string(static_cast<std::size_t>(round % 90), 'x') + "\"}");
    }
    REQUIRE(trace->flush());
    const std::string text = file.text();
    REQUIRE(text.substr(text.size() - 3) == "\n]\n");
    REQUIRE(read_events(text).size() == count);
  }
  const std::string text = file.text();
  CHECK(text.size() > 8 * TraceFile::kPageBytes);
  for (std::size_t page = TraceFile::kPageBytes; page < text.size();
       page += TraceFile::kPageBytes) {
    CHECK(text[page - 1] == '\n');
    CHECK(text[page] == ',');
  }
}

TEST_CASE("trace file: stops at its largest size and stays closed") {
  TemporaryFile file;
  auto trace = TraceFile::open(file.path(), 8 * TraceFile::kPageBytes);
  REQUIRE(trace);
  for (int i = 0; i < 10'000; ++i) trace->append(R"({"event":"of some length, to fill it"})");
  REQUIRE(trace->flush());
  const std::string text = file.text();
  CHECK(text.size() <= 8 * TraceFile::kPageBytes + 8);
  CHECK(text.substr(text.size() - 3) == "\n]\n");
  CHECK(trace->nearly_full());
}

TEST_CASE("trace file: the path that cannot be opened is named") {
  const auto trace = TraceFile::open("/nowhere/at/all.json", 1 << 20);
  REQUIRE_FALSE(trace);
  CHECK(trace.error().message.find("/nowhere/at/all.json") != std::string::npos);
}

TEST_CASE("chrome format: the phases of one operation, as Horovod names them") {
  Lines out;
  ChromeFormat format({.rank = 0, .size = 2, .hostname = "a", .start_ns = 1000}, out);
  format.begin();
  REQUIRE(out.lines.size() == 3);
  CHECK(out.lines[0] == R"({"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0",)"
                        R"("start_time_since_epoch_in_micros":0}})");
  CHECK(out.lines[2] ==
        R"({"ph":"M","name":"hora","pid":0,"args":{"rank":0,"size":2,"hostname":"a",)"
        R"("start_ns":1000,"clock_offset_ns":0,"clock_error_ns":0}})");
  out.lines.clear();
  const auto give = [&](TraceRecord head, std::string_view payload = {}) {
    format.consume(record(head, payload).c_str());
  };
  const auto label = static_cast<std::uint32_t>(TraceLabel::kAllreduce);
  give({.kind = TraceKind::kTensor, .tensor = 1}, "grad \"7\"\n");
  give({.kind = TraceKind::kShape, .tensor = 1, .value = HORA_FLOAT32}, "[3, 2]");
  give({.kind = TraceKind::kTaken, .tensor = 1, .value = label, .time_ns = 2000});
  give({.kind = TraceKind::kArrived, .tensor = 1, .value = 1, .time_ns = 3500});
  give({.kind = TraceKind::kAgreed, .tensor = 1, .value = label, .time_ns = 4001});
  give({.kind = TraceKind::kStepBegins, .time_ns = 9000}, numbers({1}));
  give({.kind = TraceKind::kActivityBegins, .time_ns = 9100}, "SHM_ALLREDUCE");
  give({.kind = TraceKind::kActivityEnds, .time_ns = 9200});
  give({.kind = TraceKind::kStepEnds, .value = 1, .time_ns = 9300});
  give({.kind = TraceKind::kCycle, .time_ns = 9400});
  CHECK(
      out.lines ==
      std::vector<std::string>{
          R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"grad \"7\"\u000a"}})",
          R"({"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":1}})",
          R"({"ph":"B","ts":1,"name":"NEGOTIATE_ALLREDUCE","pid":1})",
          R"({"ph":"X","ts":2.500,"name":"1","pid":1,"dur":0})", R"({"ph":"E","ts":3.001,"pid":1})",
          R"({"ph":"B","ts":3.001,"name":"ALLREDUCE","pid":1})",
          R"({"ph":"B","ts":3.001,"name":"WAIT_FOR_OTHER_TENSOR_DATA","pid":1})",
          R"({"ph":"E","ts":8,"pid":1})", R"({"ph":"B","ts":8.100,"name":"SHM_ALLREDUCE","pid":1})",
          R"({"ph":"E","ts":8.200,"pid":1})",
          R"({"ph":"E","ts":8.300,"pid":1,"args":{"dtype":"float32","shape":"[3, 2]"}})",
          R"({"ph":"i","ts":8.400,"name":"CYCLE_START","s":"g"})"});
}

TEST_CASE("chrome format: a recording that begins in the middle has no end without a beginning") {
  Lines out;
  ChromeFormat format({}, out);
  const auto give = [&](TraceRecord head, std::string_view payload = {}) {
    format.consume(record(head, payload).c_str());
  };
  give({.kind = TraceKind::kActivityEnds});
  give({.kind = TraceKind::kStepEnds, .value = 1});
  CHECK(out.lines.empty());
  give({.kind = TraceKind::kTensor, .tensor = 1}, "x");
  out.lines.clear();
  give({.kind = TraceKind::kAgreed, .tensor = 1});
  give({.kind = TraceKind::kStepBegins}, numbers({1}));
  give({.kind = TraceKind::kStepEnds, .value = 1});
  CHECK(out.lines.empty());
}

TEST_CASE("chrome format: steps that are under way at once are distinguished by their places") {
  Lines out;
  ChromeFormat format({}, out);
  const auto give = [&](TraceRecord head, std::string_view payload = {}) {
    format.consume(record(head, payload).c_str());
  };
  for (std::uint32_t tensor : {1u, 2u}) {
    give({.kind = TraceKind::kTaken, .tensor = tensor});
    give({.kind = TraceKind::kAgreed, .tensor = tensor});
  }
  out.lines.clear();
  give({.kind = TraceKind::kStepBegins, .extra = 0}, numbers({1}));
  give({.kind = TraceKind::kActivityBegins, .extra = 0}, "FIRST");
  give({.kind = TraceKind::kStepBegins, .extra = 1}, numbers({2}));
  give({.kind = TraceKind::kActivityBegins, .extra = 1}, "SECOND");
  give({.kind = TraceKind::kActivityEnds, .extra = 0});
  give({.kind = TraceKind::kStepEnds, .extra = 0, .value = 1});
  give({.kind = TraceKind::kStepEnds, .extra = 1, .value = 1});
  std::string phases[3];
  for (const std::string& line : out.lines) {
    const int pid = line.find("\"pid\":1") != std::string::npos ? 1 : 2;
    const std::size_t name = line.find("\"name\":\"");
    phases[pid] += line.find("\"ph\":\"E\"") != std::string::npos
                       ? std::string("end ")
                       : line.substr(name + 8, line.find('"', name + 8) - name - 8) + " ";
  }
  CHECK(phases[1] == "ALLREDUCE FIRST end end ");
  CHECK(phases[2] == "ALLREDUCE SECOND end end ");
}

TEST_CASE("chrome format: a mismatch and an activity that failed are closed") {
  Lines out;
  ChromeFormat format({}, out);
  const auto give = [&](TraceRecord head, std::string_view payload = {}) {
    format.consume(record(head, payload).c_str());
  };
  give({.kind = TraceKind::kTaken, .tensor = 1});
  give({.kind = TraceKind::kAgreed,
        .tensor = 1,
        .value = static_cast<std::uint32_t>(TraceLabel::kError)});
  give({.kind = TraceKind::kTaken, .tensor = 2});
  give({.kind = TraceKind::kAgreed, .tensor = 2});
  give({.kind = TraceKind::kStepBegins}, numbers({2}));
  give({.kind = TraceKind::kActivityBegins}, "GLOO_ALLREDUCE");
  give({.kind = TraceKind::kStepEnds, .value = 0});
  int depth[3] = {};
  for (const std::string& line : out.lines) {
    const int pid = line.find("\"pid\":1") != std::string::npos ? 1 : 2;
    depth[pid] += line.find("\"ph\":\"B\"") != std::string::npos ? 1 : -1;
    CHECK(depth[pid] >= 0);
  }
  CHECK(depth[1] == 0);
  CHECK(depth[2] == 0);
}

TEST_CASE("chrome format: names that are not valid UTF-8 become valid") {
  CHECK(json_escaped("\xff\xc3\xa9\xed\xa0\x80\x01", 100) ==
        "\xEF\xBF\xBD\xc3\xa9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\\u0001");
  CHECK(json_escaped(std::string(1000, 'x'), 10) == "xxxxxxxxxx");
  CHECK(json_escaped("\"\"\"", 5) == "\\\"\\\"");
}

TEST_CASE("timeline: what happened between start and stop is in the file, and nothing else") {
  TemporaryFile file;
  Recorder recorder;
  run_one(recorder, "before");
  CHECK(recorder.activities(0) == nullptr);
  REQUIRE(recorder.start_timeline({.path = file.path(), .identity = {}}));
  for (int i = 0; i < 100; ++i) run_one(recorder, "tensor." + std::to_string(i % 10));
  recorder.stop_timeline();
  run_one(recorder, "after");
  const std::string text = file.text();
  CHECK(text.find("before") == std::string::npos);
  CHECK(text.find("after") == std::string::npos);
  int negotiations = 0;
  int ends = 0;
  for (const std::string& event : read_events(text)) {
    negotiations += event.find("NEGOTIATE_ALLREDUCE") != std::string::npos ? 1 : 0;
    ends += event.find(R"("shape":"[3, 2]")") != std::string::npos ? 1 : 0;
  }
  CHECK(negotiations == 100);
  CHECK(ends == 100);
  REQUIRE(recorder.start_timeline({.path = file.path(), .identity = {}}));
  recorder.stop_timeline();
  CHECK(read_events(file.text()).size() == 3);  // created again
}

TEST_CASE("timeline: a ring that is full costs operations, never balance") {
  TemporaryFile file;
  Recorder recorder;
  REQUIRE(recorder.start_timeline({.path = file.path(), .identity = {}, .ring_bytes = 4096}));
  for (int i = 0; i < 20'000; ++i) run_one(recorder, "tensor");
  recorder.stop_timeline();
  long depth = 0;
  for (const std::string& event : read_events(file.text())) {
    depth += event.find(R"("ph":"B")") != std::string::npos ? 1 : 0;
    depth -= event.find(R"("ph":"E")") != std::string::npos ? 1 : 0;
    REQUIRE(depth >= 0);
    REQUIRE(depth <= 3);
  }
}

TEST_CASE("timeline: switching it on and off disturbs no one who runs operations") {
  TemporaryFile file;
  Recorder recorder;
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    while (!stop.load()) run_one(recorder, "tensor");
  });
  for (int i = 0; i < 50; ++i) {
    CHECK(recorder.start_timeline({.path = file.path(), .identity = {}}));
    recorder.stop_timeline();
    read_events(file.text());
  }
  stop.store(true);
  engine.join();
}

TEST_CASE("timeline: the file of a process that is killed can be read") {
  TemporaryFile file;
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Recorder recorder;
      if (!recorder.start_timeline({.path = file.path(), .identity = {}})) ::_exit(1);
      for (int i = 0;; ++i) run_one(recorder, "tensor." + std::to_string(i % 1000));
    }
    // Killed while it writes: once the file has grown to a size that differs each time.
    struct stat found {};
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (Clock::now() < deadline &&
           (::stat(file.path().c_str(), &found) != 0 || found.st_size < 20'000 + round * 70'000)) {
      std::this_thread::yield();
    }
    REQUIRE(::kill(child, SIGKILL) == 0);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    CHECK(read_events(file.text()).size() > 100);
    REQUIRE(::truncate(file.path().c_str(), 0) == 0);
  }
}

TEST_CASE("clock offset: messages both ways bound it") {
  ClockOffset clock;
  CHECK_FALSE(clock.known());
  CHECK(clock.offset_ns() == 0);
  // Ours is 1000 ahead; messages take 10 one way, 30 the other.
  clock.received(500, 1510);
  clock.answered(2000, 1030);
  CHECK(clock.known());
  CHECK(clock.offset_ns() == 990);
  CHECK(clock.error_ns() == 20);
  clock.received(600, 1700);  // a slow one adds nothing
  CHECK(clock.offset_ns() == 990);
  clock.answered(3000, 2002);
  CHECK(clock.offset_ns() == 1004);
  CHECK(clock.error_ns() == 6);
}
