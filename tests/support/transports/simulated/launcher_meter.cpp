// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transports/simulated/launcher_meter.h"

#include <dirent.h>
#include <time.h>

#include <memory>

#include <nlohmann/json.hpp>

namespace hora::test {

namespace {

const char* name_of(Step step) {
  switch (step) {
    case Step::kHello:
      return "hello";
    case Step::kOrder:
      return "order";
    case Step::kReady:
      return "ready";
    case Step::kStart:
      return "start";
    case Step::kStarted:
      return "started";
    case Step::kExits:
      return "exits";
    case Step::kGoodbye:
      return "goodbye";
  }
  return "";
}

// All threads, also those that have ended. 0 once the process is no more.
double cpu_seconds(pid_t pid) {
  clockid_t clock;
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

int open_descriptors(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  int count = 0;
  while (directory && ::readdir(directory.get()) != nullptr) ++count;
  return count > 2 ? count - 2 : 0;  // "." and ".."
}

}  // namespace

void LauncherMeter::begin(pid_t launcher) {
  launcher_ = launcher;
  began_ = Clock::now();
}

LauncherMeter::Moment LauncherMeter::now() const {
  return {std::chrono::duration<double>(Clock::now() - began_).count(), cpu_seconds(launcher_)};
}

void LauncherMeter::reach(Step step) {
  Mark& mark = marks_[step];
  mark.last = now();
  if (mark.hosts++ == 0) mark.first = mark.last;
  if (step == Step::kStart && mark.hosts == 1) descriptors_ = open_descriptors(launcher_);
}

void LauncherMeter::count(launcher::FrameType type, std::size_t bytes, bool to_launcher) {
  Count& count = counts_[to_launcher ? 1 : 0][type];
  ++count.messages;
  count.bytes += bytes;
}

std::string LauncherMeter::report(int hosts, double cpu_s, long max_rss_kib, int exit_code) const {
  using nlohmann::ordered_json;
  ordered_json out = {{"hosts", hosts},
                      {"exit_code", exit_code},
                      {"wall_s", now().wall_s},
                      {"cpu_s", cpu_s},
                      {"max_rss_mib", static_cast<double>(max_rss_kib) / 1024},
                      {"descriptors", descriptors_}};
  for (const auto& [step, mark] : marks_) {
    out["steps"][name_of(step)] = {{"hosts", mark.hosts},
                                   {"first_s", mark.first.wall_s},
                                   {"last_s", mark.last.wall_s},
                                   {"first_cpu_s", mark.first.cpu_s},
                                   {"last_cpu_s", mark.last.cpu_s}};
  }
  for (const bool to_launcher : {false, true}) {
    Count sum;
    ordered_json by_type;
    for (const auto& [type, count] : counts_[to_launcher ? 1 : 0]) {
      by_type[std::to_string(static_cast<int>(type))] = {count.messages, count.bytes};
      sum.messages += count.messages;
      sum.bytes += count.bytes;
    }
    out[to_launcher ? "to_launcher" : "from_launcher"] = {
        {"messages", sum.messages}, {"bytes", sum.bytes}, {"by_type", by_type}};
  }
  return out.dump();
}

}  // namespace hora::test
