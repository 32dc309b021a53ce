// SPDX-License-Identifier: Apache-2.0
// Bundles and files as a launcher packs them, for tests.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/delivery.h"
#include "launcher/protocol/messages.h"
#include "tests/support/agent_driver.h"

namespace hora::test {

std::string sha256_hex(std::string_view bytes);
std::string pack_bytes(std::string_view bytes);  // one zstd frame

// A bundle of one part.
struct PackedBundle {
  launcher::BundlePart header;
  std::string data;  // one zstd frame of all contents

  std::string name() const { return launcher::bundle_name({header.hash}); }
  void set_data(std::string frame);  // with its hash
};
// `files`: path to content; the hash is that of paths and contents.
PackedBundle pack(const std::map<std::string, std::string>& files);

// All at once, in data frames of `piece` bytes.
void send_bundle(AgentDriver& agent, const PackedBundle& bundle, std::size_t piece = 10'000);
// The hash of the frame is added where `file` has none.
void send_file(AgentDriver& agent, launcher::ShipFile file, std::string_view content);

std::vector<std::string> names_in(const std::string& directory);
std::string content_of(const std::string& path);
void write_file(const std::string& path, std::string_view content);
// As if it was last used and written that long ago.
void make_older(const std::string& path, std::chrono::hours age);

}  // namespace hora::test
