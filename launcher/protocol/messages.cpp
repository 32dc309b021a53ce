// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/messages.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/protocol/cbor.h"

namespace hora::launcher {

namespace {

// Every message lists its fields once, in fields(); an archive visits them, either way. A message
// is read and written in one pass over its bytes: an order of a few kilobytes takes a tree of a
// thousand parts, and the tree a tenth of a millisecond on either side.
//
// Byte strings travel as CBOR binary, so that no step may mistake them for UTF-8.

constexpr std::uint64_t kFalse = 20;
constexpr std::uint64_t kTrue = 21;

struct Counter {
  template <typename T>
  void operator()(const char* name, const T& value) {
    ++count;
  }
  std::uint64_t count = 0;
};

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <typename T>
  void operator()(const char* name, const T& value) {
    append_cbor_string(out_, CborKind::kText, name);
    write(value);
  }

  void write(const std::string& text) { append_cbor_string(out_, CborKind::kBytes, text); }
  void write(bool value) { append_cbor_head(out_, CborKind::kSimple, value ? kTrue : kFalse); }
  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void write(T value) {
    if (value < T{}) {
      append_cbor_head(out_, CborKind::kNegative, ~static_cast<std::uint64_t>(value));
    } else {
      append_cbor_head(out_, CborKind::kUnsigned, static_cast<std::uint64_t>(value));
    }
  }
  template <typename A, typename B>
  void write(const std::pair<A, B>& pair) {
    append_cbor_head(out_, CborKind::kArray, 2);
    write(pair.first);
    write(pair.second);
  }
  template <typename T>
  void write(const std::vector<T>& items) {
    append_cbor_head(out_, CborKind::kArray, items.size());
    for (const T& item : items) write(item);
  }
  template <typename T>
  requires std::is_class_v<T>
  void write(const T& message) {
    Counter counter;
    fields(counter, message);
    append_cbor_head(out_, CborKind::kMap, counter.count);
    fields(*this, message);
  }

 private:
  std::string& out_;
};

// Reads into the fields from bytes of a sound shape; the first fault is kept, the rest is skipped.
class Reader {
 public:
  // Takes the pairs of a map.
  Reader(std::string_view& bytes, std::uint64_t pairs) {
    for (; pairs > 0; --pairs) {
      const CborItem name = take_cbor_item(bytes);
      const std::string_view value = bytes;
      skip_cbor_value(bytes);
      if (name.kind == CborKind::kText) entries_.emplace_back(name.string, value);
    }
  }

  template <typename T>
  void operator()(const char* name, T& value) {
    if (!fault_.empty()) return;
    std::string_view* found = find(name);
    if (found == nullptr) {
      fault_ = std::string("field '") + name + "' is missing";
    } else if (!take(*found, value)) {
      fault_ = std::string("field '") + name + "' has an unexpected value";
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  // As a rule they come in the order in which they are asked for.
  std::string_view* find(std::string_view name) {
    for (std::size_t looked = 0; looked < entries_.size(); ++looked) {
      auto& [own, value] = entries_[next_];
      next_ = next_ + 1 == entries_.size() ? 0 : next_ + 1;
      if (own == name) return &value;
    }
    return nullptr;
  }

  static bool take(std::string_view& bytes, std::string& text) {
    const CborItem item = take_cbor_item(bytes);
    if (item.kind != CborKind::kBytes) return false;
    text.assign(item.string);
    return true;
  }
  static bool take(std::string_view& bytes, bool& value) {
    const CborItem item = take_cbor_item(bytes);
    value = item.number == kTrue;
    return item.kind == CborKind::kSimple && (item.number == kTrue || item.number == kFalse);
  }
  template <typename T>
  requires(std::is_integral_v<T> &&
           !std::is_same_v<T, bool>) static bool take(std::string_view& bytes, T& value) {
    const CborItem item = take_cbor_item(bytes);
    if (item.number > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return false;
    value = static_cast<T>(item.number);
    if (item.kind == CborKind::kUnsigned) return true;
    value = static_cast<T>(~item.number);
    return item.kind == CborKind::kNegative && std::is_signed_v<T>;
  }
  static bool take(std::string_view& bytes, StdinSource& value) {
    return take(bytes, value, StdinSource::kStream);
  }
  static bool take(std::string_view& bytes, SpawnStage& value) {
    return take(bytes, value, kLastSpawnStage);
  }
  // An enumerator up to `last`: a larger number is not a value of the type.
  template <typename T>
  static bool take(std::string_view& bytes, T& value, T last) {
    std::uint8_t number = 0;
    if (!take(bytes, number) || number > static_cast<std::uint8_t>(last)) return false;
    value = static_cast<T>(number);
    return true;
  }
  template <typename A, typename B>
  static bool take(std::string_view& bytes, std::pair<A, B>& pair) {
    const CborItem item = take_cbor_item(bytes);
    return item.kind == CborKind::kArray && item.number == 2 && take(bytes, pair.first) &&
           take(bytes, pair.second);
  }
  template <typename T>
  static bool take(std::string_view& bytes, std::vector<T>& items) {
    const CborItem array = take_cbor_item(bytes);
    if (array.kind != CborKind::kArray) return false;
    items.clear();
    items.reserve(array.number);
    for (std::uint64_t left = array.number; left > 0; --left) {
      if (!take(bytes, items.emplace_back())) return false;
    }
    return true;
  }
  template <typename T>
  requires(std::is_class_v<T>) static bool take(std::string_view& bytes, T& message) {
    const CborItem map = take_cbor_item(bytes);
    if (map.kind != CborKind::kMap) return false;
    Reader reader(bytes, map.number);
    fields(reader, message);
    return reader.fault().empty();
  }

  std::vector<std::pair<std::string_view, std::string_view>>
      entries_;  // the value and what follows
  std::size_t next_ = 0;
  std::string fault_;
};

// --- the fields of each message, named once ------------------------------------------------------

template <typename Message, typename Plain>
concept Either = std::is_same_v<std::remove_const_t<Message>, Plain>;

void fields(auto& archive, Either<InterfaceInfo> auto& m) {
  archive("name", m.name);
  archive("address", m.address);
  archive("prefix_length", m.prefix_length);
  archive("up", m.up);
  archive("loopback", m.loopback);
  archive("virtual_bridge", m.virtual_bridge);
  archive("speed_mbps", m.speed_mbps);
  archive("mtu", m.mtu);
}

void fields(auto& archive, Either<HostLibrary> auto& m) {
  archive("soname", m.soname);
  archive("path", m.path);
  archive("fault", m.fault);
}

void fields(auto& archive, Either<Hello> auto& m) {
  archive("version", m.version);
  archive("agent_sha256", m.agent_sha256);
  archive("hostname", m.hostname);
  archive("boot_id", m.boot_id);
  archive("pid_namespace", m.pid_namespace);
  archive("home", m.home);
  archive("user", m.user);
  archive("machine", m.machine);
  archive("c_library", m.c_library);
  archive("pid", m.pid);
  archive("missing_parts", m.missing_parts);
  archive("libraries", m.libraries);
  archive("cache_directory", m.cache_directory);
  archive("cpus", m.cpus);
  archive("gpus", m.gpus);
  archive("interfaces", m.interfaces);
  archive("ssh_connection", m.ssh_connection);
  archive("probe_port", m.probe_port);
  archive("probe_nonce", m.probe_nonce);
  archive("free_port", m.free_port);
  archive("clock_ns", m.clock_ns);
}

void fields(auto& archive, Either<ProbeTarget> auto& m) {
  archive("host_index", m.host_index);
  archive("addresses", m.addresses);
  archive("port", m.port);
  archive("nonce", m.nonce);
}

void fields(auto& archive, Either<Probe> auto& m) {
  archive("targets", m.targets);
  archive("timeout_ms", m.timeout_ms);
}

void fields(auto& archive, Either<ProbeAnswer> auto& m) {
  archive("host_index", m.host_index);
  archive("address", m.address);
  archive("reached", m.reached);
  archive("local_address", m.local_address);
  archive("error", m.error);
}

void fields(auto& archive, Either<ProbeResult> auto& m) { archive("answers", m.answers); }

void fields(auto& archive, Either<BundleFile> auto& m) {
  archive("path", m.path);
  archive("size_bytes", m.size_bytes);
  archive("mode", m.mode);
  archive("link_target", m.link_target);
}

void fields(auto& archive, Either<BundlePart> auto& m) {
  archive("hash", m.hash);
  archive("packed_sha256", m.packed_sha256);
  archive("files", m.files);
}

void fields(auto& archive, Either<BundleManifest> auto& m) { archive("parts", m.parts); }

void fields(auto& archive, Either<ShipFile> auto& m) {
  archive("name", m.name);
  archive("size_bytes", m.size_bytes);
  archive("mode", m.mode);
  archive("packed_sha256", m.packed_sha256);
}

void fields(auto& archive, Either<OfferTree> auto& m) {
  archive("parts", m.parts);
  archive("environment", m.environment);
  archive("interpreter", m.interpreter);
}

void fields(auto& archive, Either<TreeState> auto& m) { archive("missing", m.missing); }

void fields(auto& archive, Either<KeepDelivery> auto& m) {
  archive("id", m.id);
  archive("key", m.key);
}

void fields(auto& archive, Either<DeliverySource> auto& m) {
  archive("host", m.host);
  archive("addresses", m.addresses);
  archive("port", m.port);
}

void fields(auto& archive, Either<FetchDelivery> auto& m) {
  archive("id", m.id);
  archive("size_bytes", m.size_bytes);
  archive("key", m.key);
  archive("sources", m.sources);
  archive("timeout_ms", m.timeout_ms);
}

void fields(auto& archive, Either<DeliveryReport> auto& m) {
  archive("id", m.id);
  archive("here", m.here);
  archive("port", m.port);
  archive("refusals", m.refusals);
}

void fields(auto& archive, Either<RankOrder> auto& m) {
  archive("rank", m.rank);
  archive("local_rank", m.local_rank);
  archive("environment", m.environment);
  archive("stdin_source", m.stdin_source);
}

void fields(auto& archive, Either<PmiHost> auto& m) {
  archive("name", m.name);
  archive("ranks", m.ranks);
}

void fields(auto& archive, Either<ProgramOrder> auto& m) {
  archive("first_rank", m.first_rank);
  archive("argv", m.argv);
}

void fields(auto& archive, Either<HostOrder> auto& m) {
  archive("job_id", m.job_id);
  archive("working_directory", m.working_directory);
  archive("ship_directory", m.ship_directory);
  archive("argv", m.argv);
  archive("more_programs", m.more_programs);
  archive("environment", m.environment);
  archive("own_variables", m.own_variables);
  archive("prepend_paths", m.prepend_paths);
  archive("ranks", m.ranks);
  archive("grace_ms", m.grace_ms);
  archive("lease_ms", m.lease_ms);
  archive("output_window_bytes", m.output_window_bytes);
  archive("bind", m.bind);
  archive("gpus_per_rank", m.gpus_per_rank);
  archive("limit_threads", m.limit_threads);
  archive("pmi", m.pmi);
  archive("pmi_hosts", m.pmi_hosts);
  archive("pmi_host", m.pmi_host);
}

void fields(auto& archive, Either<PmiJob> auto& m) {
  archive("job_id", m.job_id);
  archive("hosts", m.hosts);
  archive("own_host", m.own_host);
  archive("directory", m.directory);
  archive("next_programs", m.next_programs);
}

void fields(auto& archive, Either<PmiReply> auto& m) {
  archive("error", m.error);
  archive("environment", m.environment);
  archive("socket", m.socket);
}

void fields(auto& archive, Either<Started> auto& m) {
  archive("pids", m.pids);
  archive("notes", m.notes);
}

void fields(auto& archive, Either<RankExit> auto& m) {
  archive("rank", m.rank);
  archive("exit_code", m.exit_code);
  archive("signal", m.signal);
  archive("core_dumped", m.core_dumped);
  archive("code", m.code);
  archive("stage", m.stage);
  archive("errnum", m.errnum);
  archive("program", m.program);
  archive("interpreter", m.interpreter);
  archive("terminated_by_us", m.terminated_by_us);
  archive("clock_ns", m.clock_ns);
  archive("max_rss_bytes", m.max_rss_bytes);
  archive("user_time_us", m.user_time_us);
  archive("system_time_us", m.system_time_us);
  archive("last_stderr", m.last_stderr);
  archive("hint", m.hint);
  archive("last_operation", m.last_operation);
  archive("lost_record", m.lost_record);
}

void fields(auto& archive, Either<CollectiveOperation> auto& m) {
  archive("text", m.text);
  archive("running", m.running);
  archive("for_ms", m.for_ms);
  archive("process_set", m.process_set);
}

void fields(auto& archive, Either<CollectiveStanding> auto& m) {
  archive("state", m.state);
  archive("for_ms", m.for_ms);
  archive("process_sets", m.process_sets);
  archive("operations", m.operations);
  archive("last", m.last);
  archive("last_ended_ms", m.last_ended_ms);
}

void fields(auto& archive, Either<ProcessStacks> auto& m) {
  archive("rank", m.rank);
  archive("pid", m.pid);
  archive("leader", m.leader);
  archive("program", m.program);
  archive("state", m.state);
  archive("cpu_ms", m.cpu_ms);
  archive("threads", m.threads);
  archive("stacks", m.stacks);
  archive("standing", m.standing);
}

void fields(auto& archive, Either<StackReport> auto& m) { archive("processes", m.processes); }

void fields(auto& archive, Either<Goodbye> auto& m) {
  archive("survivors", m.survivors);
  archive("survivor_pids", m.survivor_pids);
  archive("killed", m.killed);
  archive("forking", m.forking);
  archive("stays", m.stays);
}

void fields(auto& archive, Either<GpuFault> auto& m) {
  archive("device", m.device);
  archive("xid", m.xid);
  archive("rank", m.rank);
  archive("pid", m.pid);
  archive("program", m.program);
  archive("text", m.text);
}

void fields(auto& archive, Either<Failure> auto& m) {
  archive("code", m.code);
  archive("message", m.message);
  archive("advice", m.advice);
  archive("subject", m.subject);
}

void fields(auto& archive, Either<LogLine> auto& m) {
  archive("level", m.level);
  archive("message", m.message);
}

// --- whole messages ------------------------------------------------------------------------------

template <typename Message>
std::string encode_message(const Message& message) {
  std::string out;
  Writer(out).write(message);
  return out;
}

template <typename Message>
Result<Message> decode_message(std::string_view bytes, const char* name,
                               std::size_t most_items = kMaxCborItems) {
  if (const Status shape = check_cbor_shape(bytes, most_items); !shape) {
    return make_error(ErrorCode::kFailed, std::string(name) + ": " + shape.error().message);
  }
  const CborItem map = take_cbor_item(bytes);
  if (map.kind != CborKind::kMap) {
    return make_error(ErrorCode::kFailed, std::string(name) + ": not a CBOR map");
  }
  Message message;
  Reader reader(bytes, map.number);
  fields(reader, message);
  if (!reader.fault().empty()) {
    return make_error(ErrorCode::kFailed, std::string(name) + ": " + reader.fault());
  }
  return message;
}

}  // namespace

// A program owns the ranks from its first one to that of the next.
int program_number(const PmiJob& job, int rank) {
  return static_cast<int>(std::count_if(job.next_programs.begin(), job.next_programs.end(),
                                        [rank](int first) { return first <= rank; }));
}

std::string encode(const Hello& message) { return encode_message(message); }
std::string encode(const Probe& message) { return encode_message(message); }
std::string encode(const ProbeResult& message) { return encode_message(message); }
std::string encode(const BundlePart& message) { return encode_message(message); }
std::string encode(const BundleManifest& message) { return encode_message(message); }
std::string encode(const ShipFile& message) { return encode_message(message); }
std::string encode(const OfferTree& message) { return encode_message(message); }
std::string encode(const TreeState& message) { return encode_message(message); }
std::string encode(const KeepDelivery& message) { return encode_message(message); }
std::string encode(const FetchDelivery& message) { return encode_message(message); }
std::string encode(const DeliveryReport& message) { return encode_message(message); }
std::string encode(const HostOrder& message) { return encode_message(message); }
std::string encode(const Started& message) { return encode_message(message); }
std::string encode(const RankExit& message) { return encode_message(message); }
std::string encode(const StackReport& message) { return encode_message(message); }
std::string encode(const Goodbye& message) { return encode_message(message); }
std::string encode(const GpuFault& message) { return encode_message(message); }
std::string encode(const Failure& message) { return encode_message(message); }
std::string encode(const LogLine& message) { return encode_message(message); }
std::string encode(const PmiJob& message) { return encode_message(message); }
std::string encode(const PmiReply& message) { return encode_message(message); }

Result<Hello> decode_hello(std::string_view bytes) { return decode_message<Hello>(bytes, "hello"); }
Result<Probe> decode_probe(std::string_view bytes) { return decode_message<Probe>(bytes, "probe"); }
Result<ProbeResult> decode_probe_result(std::string_view bytes) {
  return decode_message<ProbeResult>(bytes, "probe result");
}
Result<BundlePart> decode_bundle_part(std::string_view bytes) {
  return decode_message<BundlePart>(bytes, "bundle part");
}
Result<BundleManifest> decode_bundle_manifest(std::string_view bytes) {
  return decode_message<BundleManifest>(bytes, "bundle manifest");
}
Result<ShipFile> decode_ship_file(std::string_view bytes) {
  return decode_message<ShipFile>(bytes, "ship file");
}
Result<OfferTree> decode_offer_tree(std::string_view bytes) {
  return decode_message<OfferTree>(bytes, "offer of a folder");
}
Result<TreeState> decode_tree_state(std::string_view bytes) {
  return decode_message<TreeState>(bytes, "state of a folder");
}
Result<KeepDelivery> decode_keep_delivery(std::string_view bytes) {
  return decode_message<KeepDelivery>(bytes, "order to keep a delivery");
}

Result<FetchDelivery> decode_fetch_delivery(std::string_view bytes) {
  return decode_message<FetchDelivery>(bytes, "order to fetch a delivery");
}

Result<DeliveryReport> decode_delivery_report(std::string_view bytes) {
  return decode_message<DeliveryReport>(bytes, "delivery report");
}

Result<HostOrder> decode_host_order(std::string_view bytes) {
  // The largest host has many ranks, each with a few dozen words. The launcher is trusted.
  constexpr std::size_t kMostItems = 8 * kMaxCborItems;
  return decode_message<HostOrder>(bytes, "host order", kMostItems);
}
Result<Started> decode_started(std::string_view bytes) {
  return decode_message<Started>(bytes, "started");
}
Result<RankExit> decode_rank_exit(std::string_view bytes) {
  return decode_message<RankExit>(bytes, "rank exit");
}
Result<StackReport> decode_stack_report(std::string_view bytes) {
  return decode_message<StackReport>(bytes, "stack report");
}
Result<Goodbye> decode_goodbye(std::string_view bytes) {
  return decode_message<Goodbye>(bytes, "goodbye");
}
Result<GpuFault> decode_gpu_fault(std::string_view bytes) {
  return decode_message<GpuFault>(bytes, "GPU fault");
}
Result<Failure> decode_failure(std::string_view bytes) {
  return decode_message<Failure>(bytes, "failure");
}
Result<LogLine> decode_log_line(std::string_view bytes) {
  return decode_message<LogLine>(bytes, "log line");
}
Result<PmiJob> decode_pmi_job(std::string_view bytes) {
  return decode_message<PmiJob>(bytes, "PMI job");
}
Result<PmiReply> decode_pmi_reply(std::string_view bytes) {
  return decode_message<PmiReply>(bytes, "PMI reply");
}

}  // namespace hora::launcher
