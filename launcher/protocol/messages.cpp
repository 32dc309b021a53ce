// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/messages.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "launcher/protocol/cbor_shape.h"

namespace hora::launcher {

namespace {

using nlohmann::json;

// Every message lists its fields once, in fields(); an archive visits them, either way.
//
// Byte strings travel as CBOR binary, so that no step may mistake them for UTF-8.

class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    object_[name] = to_json(value);
  }

  static json to_json(const std::string& text) { return json::binary({text.begin(), text.end()}); }
  static json to_json(bool value) { return value; }
  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) static json to_json(T value) {
    if constexpr (std::is_enum_v<T>) {
      return static_cast<std::int64_t>(value);
    } else if constexpr (std::is_unsigned_v<T>) {
      return static_cast<std::uint64_t>(value);
    } else {
      return static_cast<std::int64_t>(value);
    }
  }
  template <typename A, typename B>
  static json to_json(const std::pair<A, B>& pair) {
    return json::array({to_json(pair.first), to_json(pair.second)});
  }
  template <typename T>
  static json to_json(const std::vector<T>& items) {
    json array = json::array();
    for (const T& item : items) array.push_back(to_json(item));
    return array;
  }
  template <typename T>
  requires std::is_class_v<T>
  static json to_json(const T& message) {
    Writer writer;
    fields(writer, message);
    return std::move(writer.object_);
  }

 private:
  json object_ = json::object();
};

// Reads into the fields; the first fault is kept, the rest is skipped.
class Reader {
 public:
  explicit Reader(const json& object) : object_(object) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    if (!fault_.empty()) return;
    const auto found = object_.find(name);
    if (found == object_.end()) {
      fault_ = std::string("field '") + name + "' is missing";
    } else if (!from_json(*found, value)) {
      fault_ = std::string("field '") + name + "' has an unexpected value";
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  static bool from_json(const json& source, std::string& text) {
    if (!source.is_binary()) return false;
    const auto& bytes = source.get_binary();
    text.assign(bytes.begin(), bytes.end());
    return true;
  }
  static bool from_json(const json& source, bool& value) {
    if (!source.is_boolean()) return false;
    value = source.get<bool>();
    return true;
  }
  template <typename T>
  requires(std::is_integral_v<T> &&
           !std::is_same_v<T, bool>) static bool from_json(const json& source, T& value) {
    if (source.is_number_unsigned()) {
      const auto wide = source.get<std::uint64_t>();
      if (wide > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return false;
      value = static_cast<T>(wide);
      return true;
    }
    if (!source.is_number_integer() || std::is_unsigned_v<T>) return false;
    const auto wide = source.get<std::int64_t>();
    if (wide < static_cast<std::int64_t>(std::numeric_limits<T>::min())) return false;
    value = static_cast<T>(wide);
    return true;
  }
  static bool from_json(const json& source, StdinSource& value) {
    return from_json(source, value, StdinSource::kStream);
  }
  static bool from_json(const json& source, SpawnStage& value) {
    return from_json(source, value, kLastSpawnStage);
  }
  // An enumerator up to `last`: a number beyond it is no value of the type.
  template <typename T>
  static bool from_json(const json& source, T& value, T last) {
    std::uint8_t number = 0;
    if (!from_json(source, number) || number > static_cast<std::uint8_t>(last)) return false;
    value = static_cast<T>(number);
    return true;
  }
  template <typename A, typename B>
  static bool from_json(const json& source, std::pair<A, B>& pair) {
    return source.is_array() && source.size() == 2 && from_json(source[0], pair.first) &&
           from_json(source[1], pair.second);
  }
  template <typename T>
  static bool from_json(const json& source, std::vector<T>& items) {
    if (!source.is_array()) return false;
    items.clear();
    items.reserve(source.size());
    for (const json& element : source) {
      T item{};
      if (!from_json(element, item)) return false;
      items.push_back(std::move(item));
    }
    return true;
  }
  template <typename T>
  requires(std::is_class_v<T>) static bool from_json(const json& source, T& message) {
    if (!source.is_object()) return false;
    Reader reader(source);
    fields(reader, message);
    return reader.fault().empty();
  }

  const json& object_;
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
  archive("patience_ms", m.patience_ms);
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
  json::to_cbor(Writer::to_json(message), out);
  return out;
}

template <typename Message>
Result<Message> decode_message(std::string_view bytes, const char* name) {
  // The parser recurses with the nesting, and throws on some lengths whatever it is told.
  if (const Status shape = check_cbor_shape(bytes); !shape) {
    return make_error(ErrorCode::kFailed, std::string(name) + ": " + shape.error().message);
  }
  const json object = json::from_cbor(bytes.begin(), bytes.end(), /*strict=*/true,
                                      /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return make_error(ErrorCode::kFailed, std::string(name) + ": not a CBOR map");
  }
  Message message;
  Reader reader(object);
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
  return decode_message<HostOrder>(bytes, "host order");
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
