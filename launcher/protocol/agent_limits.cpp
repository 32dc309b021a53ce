// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/agent_limits.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// --- texts: each message lists its own once, with their limits ----------------------------------

enum class Kind {
  kLine,   // for people, on one line
  kBlock,  // for people
  kBytes,  // a path, or what a rank has printed
};

void texts(Hello& m, auto&& visit) {
  visit(m.version, Kind::kLine, kMostName);
  visit(m.agent_sha256, Kind::kLine, kMostName);
  visit(m.hostname, Kind::kLine, kMostName);
  visit(m.boot_id, Kind::kLine, kMostName);
  visit(m.home, Kind::kBytes, kMostPath);
  visit(m.user, Kind::kLine, kMostName);
  visit(m.machine, Kind::kLine, kMostName);
  visit(m.c_library, Kind::kLine, kMostName);
  visit(m.cache_directory, Kind::kBytes, kMostPath);
  visit(m.ssh_connection, Kind::kLine, kMostName);
  for (std::string& hash : m.missing_parts) visit(hash, Kind::kLine, kMostName);
  for (HostLibrary& each : m.libraries) {
    visit(each.soname, Kind::kLine, kMostName);
    visit(each.path, Kind::kBytes, kMostPath);
    visit(each.fault, Kind::kLine, kMostPath);
  }
  visit(m.probe_nonce, Kind::kLine, kMostName);
  for (InterfaceInfo& each : m.interfaces) {
    visit(each.name, Kind::kLine, kMostName);
    visit(each.address, Kind::kLine, kMostName);
  }
}

void texts(ProbeResult& m, auto&& visit) {
  for (ProbeAnswer& each : m.answers) {
    visit(each.address, Kind::kLine, kMostName);
    visit(each.local_address, Kind::kLine, kMostName);
    visit(each.error, Kind::kLine, kMostName);
  }
}

void texts(Started& m, auto&& visit) {
  for (std::string& note : m.notes) visit(note, Kind::kLine, kLargestNote / 2);
}

void texts(RankExit& m, auto&& visit) {
  visit(m.code, Kind::kLine, kMostName);
  visit(m.program, Kind::kBytes, kMostPath);
  visit(m.interpreter, Kind::kBytes, kMostPath);
  visit(m.last_stderr, Kind::kBytes, kMostLastWords);
  visit(m.hint, Kind::kLine, kMostText);
  visit(m.last_operation, Kind::kLine, kMostText);
  visit(m.lost_record, Kind::kLine, kMostName);
}

void texts(StackReport& m, auto&& visit) {
  std::size_t left = kMostStacks;
  for (ProcessStacks& each : m.processes) {
    visit(each.program, Kind::kLine, kMostName);
    visit(each.state, Kind::kLine, kMostName);
    visit(each.stacks, Kind::kBlock, std::max<std::size_t>(left, 64));
    left -= std::min(left, each.stacks.size());
    visit(each.standing.state, Kind::kLine, kMostName);
    visit(each.standing.last, Kind::kLine, kMostName);
    for (CollectiveOperation& one : each.standing.operations) {
      visit(one.text, Kind::kLine, kMostName);
    }
  }
}

void texts(Goodbye&, auto&&) {}

void texts(GpuFault& m, auto&& visit) {
  visit(m.device, Kind::kLine, kMostName);
  visit(m.program, Kind::kLine, kMostName);
  visit(m.text, Kind::kLine, 1024);
}

void texts(DeliveryReport& m, auto&& visit) {
  visit(m.id, Kind::kLine, kMostName);
  for (std::string& refusal : m.refusals) visit(refusal, Kind::kLine, kMostName);
}

void texts(Failure& m, auto&& visit) {
  visit(m.code, Kind::kLine, kMostName);
  visit(m.message, Kind::kBlock, kMostFailureText);
  visit(m.advice, Kind::kBlock, kMostText);
  visit(m.subject, Kind::kLine, kMostName);
}

void texts(LogLine& m, auto&& visit) { visit(m.message, Kind::kLine, kMostText); }

// --- lists ---------------------------------------------------------------------------------------

void cut_list(auto& list, std::size_t most) {
  if (list.size() > most) list.resize(most);
}

void cut_lists(Hello& m) {
  cut_list(m.interfaces, kMostInterfaces);
  cut_list(m.missing_parts, kMostParts);
  cut_list(m.libraries, kMostParts);
}
void cut_lists(Started& m) { cut_list(m.notes, kMostNotes + 2 * m.pids.size()); }
void cut_lists(StackReport& m) {
  cut_list(m.processes, kMostProcesses);
  for (ProcessStacks& each : m.processes) cut_list(each.standing.operations, kMostOperations);
}
void cut_lists(Goodbye& m) { cut_list(m.survivor_pids, kMostSurvivorPids); }
void cut_lists(DeliveryReport& m) { cut_list(m.refusals, kMostSources); }
template <typename Message>
void cut_lists(Message&) {}

template <typename Message>
Message fitting(Message message) {
  cut_lists(message);
  texts(message, [](std::string& text, Kind, std::size_t most) {
    if (text.size() > most) text = shortened(text, most);
  });
  return message;
}

template <typename Message>
Message cleaned(Message message) {
  texts(message, [](std::string& text, Kind kind, std::size_t most) {
    if (text.size() > most) text = shortened(text, most);
    if (kind == Kind::kLine) text = visible_line(text);
    if (kind == Kind::kBlock) text = visible(text);
  });
  return message;
}

// --- numbers -------------------------------------------------------------------------------------

// The first thing that is wrong with a message.
class Examination {
 public:
  Examination& number(std::string_view name, std::int64_t value, std::int64_t least,
                      std::int64_t most) {
    if (value < least || value > most) fault(name, "is " + std::to_string(value));
    return *this;
  }
  Examination& list(std::string_view name, std::size_t size, std::size_t most) {
    if (size > most) fault(name, "has " + std::to_string(size) + " entries");
    return *this;
  }
  Examination& address(std::string_view name, const std::string& text) {
    if (!parse_ip_address(text)) fault(name, "is not an address: " + quote(text, 64));
    return *this;
  }
  Examination& that(bool holds, std::string_view name, std::string_view what) {
    if (!holds) fault(name, what);
    return *this;
  }
  Status status() const {
    return fault_.empty() ? Status(Ok{}) : make_error(ErrorCode::kFailed, fault_);
  }

 private:
  void fault(std::string_view name, std::string_view what) {
    if (fault_.empty()) fault_ = "'" + std::string(name) + "' " + std::string(what);
  }
  std::string fault_;
};

constexpr std::int64_t kLargestPort = 65'535;
constexpr std::int64_t kLargestErrno = 4'095;  // the kernel's MAX_ERRNO

// "E_SSH_AUTH"
bool is_class(std::string_view code) {
  return code.size() > 2 && code.size() <= 64 && code.substr(0, 2) == "E_" &&
         code.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

}  // namespace

Hello fit(Hello message) { return fitting(std::move(message)); }
ProbeResult fit(ProbeResult message) { return fitting(std::move(message)); }
Started fit(Started message) { return fitting(std::move(message)); }
RankExit fit(RankExit message) { return fitting(std::move(message)); }
StackReport fit(StackReport message) { return fitting(std::move(message)); }
Goodbye fit(Goodbye message) { return fitting(std::move(message)); }
GpuFault fit(GpuFault message) { return fitting(std::move(message)); }
DeliveryReport fit(DeliveryReport message) { return fitting(std::move(message)); }
Failure fit(Failure message) { return fitting(std::move(message)); }
LogLine fit(LogLine message) { return fitting(std::move(message)); }

Hello clean(Hello message) { return cleaned(std::move(message)); }
ProbeResult clean(ProbeResult message) { return cleaned(std::move(message)); }
Started clean(Started message) { return cleaned(std::move(message)); }
RankExit clean(RankExit message) { return cleaned(std::move(message)); }
StackReport clean(StackReport message) { return cleaned(std::move(message)); }
Goodbye clean(Goodbye message) { return cleaned(std::move(message)); }
GpuFault clean(GpuFault message) { return cleaned(std::move(message)); }
DeliveryReport clean(DeliveryReport message) { return cleaned(std::move(message)); }
Failure clean(Failure message) { return cleaned(std::move(message)); }
LogLine clean(LogLine message) { return cleaned(std::move(message)); }

Status check(const Hello& m) {
  Examination seen;
  seen.number("pid", m.pid, 0, kLargestPid)
      .number("pid_namespace", m.pid_namespace, 0, UINT32_MAX)
      .number("cpus", m.cpus, 0, 1 << 20)
      .number("gpus", m.gpus, 0, kMostGpus)
      .number("probe_port", m.probe_port, 0, kLargestPort)
      .number("free_port", m.free_port, 0, kLargestPort)
      .number("clock_ns", m.clock_ns, 0, kLatestClockNs)
      .list("interfaces", m.interfaces.size(), kMostInterfaces)
      .list("missing_parts", m.missing_parts.size(), kMostParts)
      .list("libraries", m.libraries.size(), kMostParts);
  for (const InterfaceInfo& each : m.interfaces) {
    seen.address("address", each.address)
        .number("prefix_length", each.prefix_length, 0, 128)
        .number("speed_mbps", each.speed_mbps, 0, kLargestPid)
        .number("mtu", each.mtu, 0, kLargestPid);
  }
  return seen.status();
}

Status check(const ProbeResult& m) {
  Examination seen;
  for (const ProbeAnswer& each : m.answers) {
    if (!each.local_address.empty()) seen.address("local_address", each.local_address);
  }
  return seen.status();
}

Status check(const Started& m) {
  Examination seen;
  seen.list("notes", m.notes.size(), kMostNotes + 2 * m.pids.size());
  for (const auto& [rank, pid] : m.pids) seen.number("pids", pid, 1, kLargestPid);
  return seen.status();
}

Status check(const RankExit& m) {
  Examination seen;
  seen.number("exit_code", m.exit_code, 0, 255)
      .number("signal", m.signal, 0, 64)
      .that(m.signal == 0 || m.exit_code == 0, "signal", "comes with an exit code")
      .that(m.code.empty() || is_class(m.code), "code", "is not a class of failures")
      .that(m.stage == SpawnStage::kNone || (m.signal == 0 && (m.exit_code == kExitCannotExecute ||
                                                               m.exit_code == kExitNotFound)),
            "stage", "comes with another exit code than 126 and 127")
      .number("errnum", m.errnum, 0, kLargestErrno)
      .number("clock_ns", m.clock_ns, 0, kLatestClockNs)
      .number("max_rss_bytes", m.max_rss_bytes, 0, kMostBytes)
      .number("user_time_us", m.user_time_us, 0, kLongestUs)
      .number("system_time_us", m.system_time_us, 0, kLongestUs);
  return seen.status();
}

Status check(const StackReport& m) {
  Examination seen;
  seen.list("processes", m.processes.size(), kMostProcesses);
  for (const ProcessStacks& each : m.processes) {
    const CollectiveStanding& standing = each.standing;
    seen.number("pid", each.pid, 0, kLargestPid)
        .number("cpu_ms", each.cpu_ms, 0, kLongestMs)
        .number("threads", each.threads, 0, kLargestPid)
        .number("for_ms", standing.for_ms, 0, kLongestMs)
        .number("last_ended_ms", standing.last_ended_ms, 0, kLongestMs)
        .that(standing.state.empty() || standing.state == "joining" || standing.state == "joined" ||
                  standing.state == "left",
              "state", "is unknown")
        .list("operations", standing.operations.size(), kMostOperations);
    for (const CollectiveOperation& one : standing.operations) {
      seen.number("for_ms", one.for_ms, 0, kLongestMs)
          .number("process_set", one.process_set, -kLargestPid - 1, kLargestPid);
    }
  }
  return seen.status();
}

Status check(const Goodbye& m) {
  Examination seen;
  seen.number("survivors", m.survivors, 0, kLargestPid)
      .number("killed", m.killed, 0, kLargestPid)
      .list("survivor_pids", m.survivor_pids.size(),
            std::min<std::size_t>(kMostSurvivorPids,
                                  static_cast<std::size_t>(std::max(m.survivors, 0))));
  for (const std::int64_t pid : m.survivor_pids) seen.number("survivor_pids", pid, 1, kLargestPid);
  return seen.status();
}

Status check(const GpuFault& m) {
  return Examination()
      .number("xid", m.xid, 0, 9'999)
      .number("rank", m.rank, -1, kLargestPid)
      .number("pid", m.pid, 0, kLargestPid)
      .status();
}

Status check(const DeliveryReport& m) {
  return Examination()
      .number("port", m.port, 0, kLargestPort)
      .that(m.here || m.port == 0, "port", "is of what is not here")
      .list("refusals", m.refusals.size(), kMostSources)
      .status();
}

Status check(const Failure& m) {
  return Examination().that(is_class(m.code), "code", "is not a class of failures").status();
}

Status check(const LogLine& m) { return Examination().number("level", m.level, 0, 4).status(); }

}  // namespace hora::launcher
