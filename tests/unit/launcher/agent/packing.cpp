// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/agent/packing.h"

#include <stdlib.h>
#include <zlib.h>

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

std::string deflate(std::string_view bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string packed(size, '\0');
  if (::compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                  reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 1) != Z_OK) {
    throw std::runtime_error("compress2");
  }
  packed.resize(size);
  return packed;
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
    file.sha256 = sha256_hex(content);
    named += file.sha256 + " " + path + "\n";
    bundle.header.files.push_back(std::move(file));
    all += content;
  }
  bundle.header.hash = sha256_hex(named);
  bundle.data = deflate(all);
  return bundle;
}

void send_bundle(AgentDriver& agent, const PackedBundle& bundle, std::size_t piece) {
  agent.send(FrameType::kBundle, encode(bundle.header));
  for (std::size_t at = 0; at < bundle.data.size(); at += piece) {
    agent.send(FrameType::kData, std::string_view(bundle.data).substr(at, piece));
  }
  agent.send(FrameType::kDataEnd);
}

void send_file(AgentDriver& agent, const ShipFile& file, std::string_view content) {
  agent.send(FrameType::kShipFile, encode(file));
  agent.send(FrameType::kData, deflate(content));
  agent.send(FrameType::kDataEnd);
}

TemporaryDirectory::TemporaryDirectory() {
  char name[] = "/tmp/hora-test-XXXXXX";
  if (::mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
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

}  // namespace hora::test
