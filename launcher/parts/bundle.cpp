// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/bundle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>

#include <nlohmann/json.hpp>

#include "launcher/failures/failure_code.h"
#include "launcher/parts/hashes.h"
#include "launcher/parts/part_rules.h"
#include "launcher/parts/vendor_parts.h"
#include "launcher/parts/vendor_search.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

// The hash is of the packed bytes, as they are made: nothing is read twice, here or on the hosts.

namespace {

constexpr std::size_t kChunk = 256 * 1024;

}  // namespace

// Releases what zstd allocates.
struct FramePacker::State {
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  Sha256 hash;
  std::string chunk = std::string(kChunk, '\0');
  std::string frames;
  State() = default;
  ~State() { ::ZSTD_freeCCtx(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

FramePacker::FramePacker(int level) : state_(std::make_unique<State>()) {
  if (state_->context != nullptr) {
    ::ZSTD_CCtx_setParameter(state_->context, ZSTD_c_compressionLevel, level);
  }
}

FramePacker::~FramePacker() = default;

// One turn of the loop fills one chunk, which becomes one frame: agents take their time between
// two.
Status FramePacker::run(std::string_view bytes, bool last) {
  if (state_->context == nullptr) return make_error(ErrorCode::kFailed, "zstd: out of memory");
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  bool more = true;
  while (more) {
    ZSTD_outBuffer out{state_->chunk.data(), state_->chunk.size(), 0};
    const std::size_t left =
        ::ZSTD_compressStream2(state_->context, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    if (::ZSTD_isError(left) != 0) {
      return make_error(ErrorCode::kFailed,
                        std::string("packing failed: ") + ::ZSTD_getErrorName(left));
    }
    const std::string_view made(state_->chunk.data(), out.pos);
    state_->hash.add(made);
    if (!made.empty()) append_frame(state_->frames, FrameType::kData, made);
    more = last ? left > 0 : in.pos < in.size;
  }
  return Ok{};
}

Status FramePacker::add(std::string_view bytes) { return run(bytes, /*last=*/false); }

Result<FramePacker::Packed> FramePacker::finish() {
  HORA_TRY(run({}, /*last=*/true));
  append_frame(state_->frames, FrameType::kDataEnd, {});
  return Packed{state_->hash.hex(), std::move(state_->frames)};
}

// Finds the parts of an installation next to the running program, and turns them into the frames
// that agents receive. They are packed when a host lacks them: a prefix then holds them once, and
// it takes less time than one host needs to connect.

namespace {

using nlohmann::json;

// Levels of zstd. The runtime goes to many hosts: 19 would make it 18 % smaller and take fifty
// times as long. A user's file may be large, and a model's weights hardly shrink.
constexpr int kRuntimeLevel = 3;
constexpr int kShippedLevel = 1;
constexpr std::size_t kPiece = 1u << 20;  // between two looks for a signal
// A shipped file is held in memory as a whole.
constexpr off_t kLargestShipped = off_t{1} << 30;
constexpr const char* kTls = "tls";

Result<std::string> read_part(const std::string& path) {
  auto bytes = os::read_file(path);
  if (!bytes) {
    return make_error(ErrorCode::kNotFound, "this installation is incomplete (" +
                                                bytes.error().message +
                                                "); build the target 'bundle' or install again");
  }
  return bytes;
}

Result<json> read_json(const std::string& path) {
  const auto text = read_part(path);
  if (!text) return Error(text.error());
  json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded())
    return make_error(ErrorCode::kFailed, path + " is damaged: it is not JSON");
  return value;
}

// The library reports a missing field by an exception; it ends here.
Error damaged(const std::string& path, const json::exception& e) {
  return make_error(ErrorCode::kFailed, path + " is damaged: " + e.what());
}

// What files.json says of a part.
Result<std::vector<PartFile>> read_list(const Build& build, const std::string& part) {
  const std::string path = build.directory + "/files.json";
  const auto list = read_json(path);
  if (!list) return Error(list.error());
  std::vector<PartFile> files;
  try {
    for (const json& entry : list->at(part)) {
      PartFile& listed = files.emplace_back();
      listed.file.path = entry.at("path").get<std::string>();
      listed.file.size_bytes = entry.at("size").get<std::uint64_t>();
      listed.file.mode = entry.at("mode").get<int>();
      listed.sha256 = entry.at("sha256").get<std::string>();
      listed.source = build.bundle_directory + "/" + listed.file.path;
    }
  } catch (const json::exception& e) {
    return damaged(path, e);
  }
  return files;
}

// Hosts keep a part under the hash that it had when it was built, so it must be what it was.
Status add_file(FramePacker& packer, const PartFile& listed, const std::string& advice) {
  const auto bytes = read_part(listed.source);
  if (!bytes) return Error(bytes.error());
  if (bytes->size() != listed.file.size_bytes || sha256_hex(*bytes) != listed.sha256) {
    return make_error(ErrorCode::kFailed, listed.source + " is not as it was" + advice);
  }
  return packer.add(*bytes);
}

const VendorPart* find_vendor_part(const Build& build, const std::string& hash) {
  for (const VendorNeed& need : build.vendor_needs) {
    if (need.part && need.part->hash == hash) return need.part.get();
  }
  return nullptr;
}

// A part of the runtime, or of a vendor.
Result<std::vector<PartFile>> files_of(const Build& build, const std::string& hash) {
  if (const VendorPart* part = find_vendor_part(build, hash)) {
    std::vector<PartFile> files = part->files;
    auto licences = licence_parts(part->packaged, part->licence_folder);
    if (!licences) return std::move(licences).error();
    std::move(licences->begin(), licences->end(), std::back_inserter(files));
    return files;
  }
  for (const auto& [name, each] : build.part_hashes) {
    if (each == hash) return read_list(build, name);
  }
  return make_error(ErrorCode::kNotFound, "no part of the runtime has the hash " + hash);
}

// Sorted by their names, which agents do not depend on.
void choose_parts(Installation& installation,
                  const std::function<Shipping(std::string_view part)>& shipping) {
  for (Build& build : installation.builds) {
    build.needed_parts.clear();
    for (const auto& [part, hash] : build.part_hashes) {
      const Shipping how = shipping(part);
      if (how == Shipping::kNo) continue;
      NeededPart& needed = build.needed_parts.emplace_back();
      needed.hash = hash;
      needed.with_gpu = how == Shipping::kToGpus;
    }
    for (const VendorNeed& need : build.vendor_needs) {
      if (auto part = needed_part(need)) build.needed_parts.push_back(std::move(*part));
    }
  }
}

// Looks at the manifest and the agent alone; each file of the runtime is checked when it is packed.
Result<Build> read_build(const std::string& share, const std::string& machine) {
  Build found;
  found.machine = machine;
  found.directory = share + "/" + machine;
  found.agent_path = found.directory + "/agent/hora-agent";
  found.dial_path = found.directory + "/agent/hora-dial";
  found.bundle_directory = found.directory + "/bundle";
  const std::string path = found.directory + "/manifest.json";
  const auto manifest = read_json(path);
  if (!manifest) return Error(manifest.error());
  try {
    // Left from another installation: its agent speaks another protocol.
    if (const auto version = manifest->at("version").get<std::string>(); version != HORA_VERSION) {
      return make_error(ErrorCode::kFailed, "it is of Hora " + version);
    }
    found.agent_sha256 = manifest->at("agent_sha256").get<std::string>();
    found.dial_sha256 = manifest->value("dial_sha256", "");
    found.part_hashes = manifest->at("parts").get<std::map<std::string, std::string>>();
    found.least_glibc = manifest->value("least_glibc", "");
  } catch (const json::exception& e) {
    return damaged(path, e);
  }
  if (::access(found.agent_path.c_str(), X_OK) != 0) {
    return errno_error(errno, "this installation is incomplete: " + found.agent_path);
  }
  return found;
}

// The folders of share/hora that have a build, sorted.
std::vector<std::string> machines_in(const std::string& share) {
  std::vector<std::string> found;
  for (const std::string& name : os::names_in(share)) {
    // One that is being added has a dot in front.
    if (name.front() == '.') continue;
    if (::access((share + "/" + name + "/manifest.json").c_str(), F_OK) == 0) found.push_back(name);
  }
  return found;
}

}  // namespace

// Agents of tests, and of hosts that report none, count as ours. A build with a fault counts as
// none: the failure that follows names the fault.
const Build* Installation::find(std::string_view machine) const {
  if (machine.empty()) return &own();
  for (const Build& build : builds) {
    if (build.machine == machine) return build.fault.empty() ? &build : nullptr;
  }
  return nullptr;
}

std::string Installation::machines_text() const {
  std::string text;
  for (const Build& build : builds) {
    text += (text.empty() ? "" : ", ") + build.machine;
    if (!build.fault.empty()) text += " (" + build.fault + ")";
  }
  return text;
}

Result<Installation> find_installation() {
  auto directory = os::program_folder();
  if (!directory) return std::move(directory).error();
  // bin/horarun and share/hora have the same parent.
  const std::string share = directory->substr(0, directory->rfind('/')) + "/share/hora";
  return read_installation(share, own_machine());
}

Result<Installation> read_installation(const std::string& share, std::string_view own) {
  Installation found;
  auto build = read_build(share, std::string(own));
  if (!build) return std::move(build).error();
  found.builds.push_back(std::move(*build));
  for (const std::string& machine : machines_in(share)) {
    if (machine == own) continue;
    // An error in it matters only when such a host appears.
    auto other = read_build(share, machine);
    Build& added = found.builds.emplace_back();
    if (other) {
      added = std::move(*other);
    } else {
      added.machine = machine;
      added.fault = other.error().message;
    }
  }
  return found;
}

Result<Installation> with_parts_for_job(Installation installation, const JobSpec& spec,
                                        const EnvironmentList& environment) {
  if (spec.rendezvous_tls && installation.own().part_hashes.count(kTls) == 0) {
    return make_error(ErrorCode::kUsage,
                      "--rendezvous-tls: this Hora was built without OpenSSL (see --check-build "
                      "--verbose); install "
                      "libssl-dev, or its equivalent, and build it again [" +
                          std::string(failure::kMissingFeature) + "]");
  }
  for (Build& build : installation.builds) {
    if (spec.rendezvous_tls && build.fault.empty() && build.part_hashes.count(kTls) == 0) {
      build.fault = "built without OpenSSL";
    }
  }
  auto needs = vendor_needs_of(spec, environment);
  if (!needs) return std::move(needs).error();
  std::erase_if(*needs, [&installation](const VendorNeed& need) {
    return !need.for_part.empty() && installation.own().part_hashes.count(need.for_part) == 0;
  });
  if (!needs->empty()) {
    installation.library_path = library_path(spec, environment);
    installation.run_path = program_run_path(spec, environment);
    if (!spec.command.empty()) installation.program = spec.command.front();
  }
  // Agents of every processor look for the libraries, since the rules for hosts that lack them are
  // the same; only those of this machine's can be sent its files.
  for (Build& build : installation.builds) {
    build.vendor_needs = *needs;
    if (&build == &installation.own()) continue;
    for (VendorNeed& need : build.vendor_needs) {
      need.part.reset();
      need.why_no_part = "this machine's is for " + installation.own().machine;
    }
  }
  choose_parts(installation,
               [&](std::string_view part) { return shipping_for_job(part, spec, environment); });
  return installation;
}

Installation with_parts_for_doctor(Installation installation, bool with_runtime) {
  choose_parts(installation, [with_runtime](std::string_view part) {
    return shipping_for_doctor(part, with_runtime);
  });
  return installation;
}

// The list comes first, so that the agent can create the files while their contents arrive.
Result<std::shared_ptr<const std::string>> part_frames(const Build& build,
                                                       const std::string& hash) {
  const auto files = files_of(build, hash);
  if (!files) return Error(files.error()).with_context("packing the runtime");
  FramePacker packer(kRuntimeLevel);
  BundlePart header;
  header.hash = hash;
  const VendorPart* const vendor = find_vendor_part(build, hash);
  const std::string advice =
      vendor != nullptr ? " when this job began; start it again"
                        : " built, or when this job began; start it again, or install Hora again";
  for (const PartFile& listed : *files) {
    if (auto added = add_file(packer, listed, advice); !added) {
      // The remembered hash may be the wrong one.
      if (vendor != nullptr) KnownHashes::forget(vendor->memory_folder);
      return Error(added.error());
    }
    header.files.push_back(listed.file);
  }
  auto packed = packer.finish();
  if (!packed) return std::move(packed).error();
  header.packed_sha256 = std::move(packed->sha256);
  std::string frames = encode_frame(FrameType::kPart, encode(header));
  frames += packed->frames;
  return std::make_shared<const std::string>(std::move(frames));
}

Result<ShippedFile> ship_file_frames(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, "--ship: opening " + path);
  // Reading a pipe could block forever, and a device may have no end.
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kUsage,
                      "--ship: " + path + " is not a file; expected a file or a folder");
  }
  if (info.st_size > kLargestShipped) {
    return make_error(ErrorCode::kUsage,
                      "--ship: " + path + " has " + std::to_string(info.st_size >> 20) +
                          " MiB; at most " + std::to_string(kLargestShipped >> 20) +
                          " MiB are sent; put larger files into a shared folder");
  }
  const os::Fd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return errno_error(errno, "--ship: opening " + path);
  ShipFile file;
  file.name = path.substr(path.rfind('/') + 1);
  file.mode = static_cast<int>(info.st_mode & 0777);
  FramePacker packer(kShippedLevel);
  std::string piece(kPiece, '\0');
  for (;;) {
    HORA_TRY(check_interrupted());
    const ssize_t got = ::read(opened.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "--ship: reading " + path);
    if (got == 0) break;
    file.size_bytes += static_cast<std::uint64_t>(got);
    HORA_TRY(packer.add({piece.data(), static_cast<std::size_t>(got)}));
  }
  auto packed = packer.finish();
  if (!packed) return std::move(packed).error();
  // The agent compares: a file that arrived damaged is refused, not executed.
  file.packed_sha256 = std::move(packed->sha256);
  return ShippedFile{encode_frame(FrameType::kShipFile, encode(file)), std::move(packed->frames)};
}

}  // namespace hora::launcher
