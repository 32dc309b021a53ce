// SPDX-License-Identifier: Apache-2.0
// Finds the parts of an installation next to the running program, and turns them into the frames
// that agents receive. The bundle is compressed when Hora is built, so a launch only frames it.
#include "launcher/build/bundle.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <climits>

#include <nlohmann/json.hpp>
#include <sha256.h>  // libmd

#include "launcher/failures/failure_code.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

using nlohmann::json;

constexpr std::size_t kChunk = 256 * 1024;
// A shipped file is held in memory as a whole.
constexpr off_t kLargestShipped = off_t{1} << 30;

std::string sha256_hex(std::string_view bytes) {
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::array<char, SHA256_DIGEST_STRING_LENGTH> text;
  SHA256End(&context, text.data());
  return text.data();
}

// Compresses its input into kData frames at the end of `out`.
class FrameDeflater {
 public:
  explicit FrameDeflater(std::string& out) : out_(out) {
    ready_ = ::deflateInit(&stream_, /*fast: the link is usually faster than level 6*/ 1) == Z_OK;
  }
  ~FrameDeflater() { ::deflateEnd(&stream_); }
  FrameDeflater(const FrameDeflater&) = delete;
  FrameDeflater& operator=(const FrameDeflater&) = delete;

  Status add(std::string_view bytes) { return run(bytes, Z_NO_FLUSH); }
  Status finish() { return run({}, Z_FINISH); }

 private:
  Status run(std::string_view bytes, int flush) {
    if (!ready_) return make_error(ErrorCode::kFailed, "zlib could not be started");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(chunk_.data());
      stream_.avail_out = static_cast<uInt>(chunk_.size());
      // Z_BUF_ERROR only means that nothing is left to do.
      if (::deflate(&stream_, flush) == Z_STREAM_ERROR) {
        return make_error(ErrorCode::kFailed, "compressing failed");
      }
      const std::size_t made = chunk_.size() - stream_.avail_out;
      if (made > 0) append_frame(out_, FrameType::kData, {chunk_.data(), made});
    } while (stream_.avail_out == 0);
    return Ok{};
  }

  std::string& out_;
  z_stream stream_{};
  bool ready_ = false;
  std::string chunk_ = std::string(kChunk, '\0');
};

// The program's real path, so that a symbolic link to it works.
Result<std::string> own_directory() {
  std::array<char, PATH_MAX> path;
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return errno_error(errno, "finding the running program");
  const std::string program(path.data(), static_cast<std::size_t>(length));
  return program.substr(0, program.rfind('/'));
}

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
  if (value.is_discarded()) return make_error(ErrorCode::kFailed, path + " is damaged: no JSON");
  return value;
}

// The library reports a missing field by an exception; it ends here.
Error damaged(const std::string& path, const json::exception& e) {
  return make_error(ErrorCode::kFailed, path + " is damaged: " + e.what());
}

Result<BundleHeader> read_list(const Installation& installation) {
  const std::string path = installation.share + "/" + installation.bundle_list + ".json";
  const auto list = read_json(path);
  if (!list) return Error(list.error());
  BundleHeader header;
  header.hash = installation.bundle_hash;
  try {
    for (const json& entry : *list) {
      BundleFile file;
      file.path = entry.at("path").get<std::string>();
      file.size_bytes = entry.at("size").get<std::uint64_t>();
      file.mode = entry.at("mode").get<int>();
      file.sha256 = entry.value("sha256", "");
      file.link_target = entry.value("link_target", "");
      header.files.push_back(std::move(file));
    }
  } catch (const json::exception& e) {
    return damaged(path, e);
  }
  return header;
}

}  // namespace

Result<Installation> find_installation() {
  auto directory = own_directory();
  if (!directory) return std::move(directory).error();
  // bin/horarun and share/hora have the same parent.
  const std::string share = directory->substr(0, directory->rfind('/')) + "/share/hora";
  const std::string path = share + "/manifest.json";
  const auto manifest = read_json(path);
  if (!manifest) return Error(manifest.error());
  Installation found;
  found.share = share;
  found.agent_path = share + "/agent/hora-agent";
  found.bundle_directory = share + "/bundle";
  try {
    found.agent_sha256 = manifest->at("agent_sha256").get<std::string>();
    found.bundle_hash = manifest->at("bundle_hash").get<std::string>();
    found.tls_bundle_hash = manifest->value("tls_bundle_hash", "");
    found.least_glibc = manifest->value("least_glibc", "");
  } catch (const json::exception& e) {
    return damaged(path, e);
  }
  if (::access(found.agent_path.c_str(), X_OK) != 0) {
    return errno_error(errno, "this installation is incomplete: " + found.agent_path);
  }
  return found;
}

// The bundle with TLS is another one, because it needs OpenSSL on the hosts.
Result<Installation> with_tls(Installation installation) {
  if (installation.tls_bundle_hash.empty()) {
    return make_error(ErrorCode::kUsage,
                      "--rendezvous-tls: this Hora was built without OpenSSL (see --check-build "
                      "--verbose); install "
                      "libssl-dev, or its equivalent, and build it again [" +
                          std::string(failure::kMissingFeature) + "]");
  }
  installation.bundle_hash = installation.tls_bundle_hash;
  installation.bundle_list = "files-tls";
  return installation;
}

Result<std::shared_ptr<const std::string>> bundle_frames(const Installation& installation) {
  const auto header = read_list(installation);
  if (!header) return Error(header.error()).with_context("packing the runtime");
  const auto packed = read_part(installation.share + "/" + installation.bundle_list + ".zlib");
  if (!packed) return Error(packed.error());
  std::string frames;
  frames.reserve(packed->size() + packed->size() / 64 + kChunk);
  append_frame(frames, FrameType::kBundle, encode(*header));
  for (std::size_t at = 0; at < packed->size(); at += kChunk) {
    append_frame(frames, FrameType::kData, std::string_view(*packed).substr(at, kChunk));
  }
  append_frame(frames, FrameType::kDataEnd, {});
  return std::make_shared<const std::string>(std::move(frames));
}

Result<std::string> ship_file_frames(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, "--ship: opening " + path);
  // Reading a pipe could block forever, and a device may have no end.
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kUsage, "--ship: " + path + " is " +
                                             (S_ISDIR(info.st_mode) ? "a folder" : "no file") +
                                             "; expected a file, such as an archive of a folder");
  }
  if (info.st_size > kLargestShipped) {
    return make_error(ErrorCode::kUsage, "--ship: " + path + " has " +
                                             std::to_string(info.st_size >> 20) + " MiB; at most " +
                                             std::to_string(kLargestShipped >> 20) +
                                             " MiB travel, larger files want a shared folder");
  }
  auto bytes = os::read_file(path);
  if (!bytes) return std::move(bytes).error().with_context("--ship");
  ShipFile file;
  file.name = path.substr(path.rfind('/') + 1);
  file.size_bytes = bytes->size();
  file.mode = static_cast<int>(info.st_mode & 0777);
  // The agent compares: a file that arrived damaged is refused, not executed.
  file.sha256 = sha256_hex(*bytes);
  std::string frames;
  append_frame(frames, FrameType::kShipFile, encode(file));
  FrameDeflater deflater(frames);
  HORA_TRY(deflater.add(*bytes));
  HORA_TRY(deflater.finish());
  append_frame(frames, FrameType::kDataEnd, {});
  return frames;
}

}  // namespace hora::launcher
