// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/agent/packing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <sha256.h>  // libmd

namespace hora::test {

using namespace launcher;

std::string sha256_hex(std::string_view bytes) {
  char text[SHA256_DIGEST_STRING_LENGTH];
  SHA256Data(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), text);
  return text;
}

std::string pack_bytes(std::string_view bytes) {
  std::string packed(::ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ::ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 1);
  if (::ZSTD_isError(size) != 0) throw std::runtime_error(::ZSTD_getErrorName(size));
  packed.resize(size);
  return packed;
}

void PackedBundle::set_data(std::string frame) {
  data = std::move(frame);
  header.packed_sha256 = sha256_hex(data);
}

PackedBundle pack(const std::map<std::string, std::string>& files) {
  PackedBundle bundle;
  std::string all;
  std::string named;
  for (const auto& [path, content] : files) {
    BundleFile file;
    file.path = path;
    file.size_bytes = content.size();
    file.mode = 0755;
    named += sha256_hex(content) + " " + path + "\n";
    bundle.header.files.push_back(std::move(file));
    all += content;
  }
  bundle.header.hash = sha256_hex(named);
  bundle.set_data(pack_bytes(all));
  return bundle;
}

void send_bundle(AgentDriver& agent, const PackedBundle& bundle, std::size_t piece) {
  agent.send(FrameType::kPart, encode(bundle.header));
  for (std::size_t at = 0; at < bundle.data.size(); at += piece) {
    agent.send(FrameType::kData, std::string_view(bundle.data).substr(at, piece));
  }
  agent.send(FrameType::kDataEnd);
}

void send_file(AgentDriver& agent, ShipFile file, std::string_view content) {
  const std::string packed = pack_bytes(content);
  if (file.packed_sha256.empty()) file.packed_sha256 = sha256_hex(packed);
  agent.send(FrameType::kShipFile, encode(file));
  agent.send(FrameType::kData, packed);
  agent.send(FrameType::kDataEnd);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
}

void make_older(const std::string& path, std::chrono::hours age) {
  timespec now{};
  if (::clock_gettime(CLOCK_REALTIME, &now) != 0) throw std::runtime_error("clock_gettime");
  const timespec then{now.tv_sec - std::chrono::seconds(age).count(), now.tv_nsec};
  const timespec times[2] = {then, then};
  if (::utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) throw std::runtime_error(path);
}

}  // namespace hora::test
