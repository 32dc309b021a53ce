// SPDX-License-Identifier: Apache-2.0
// The hashes of the files of a tree of the user's, remembered from launch to launch: an environment
// may have gigabytes, and every launch has to name them all. A file is taken for the one that was
// read as long as the kernel says so (FileStamp). That a memory is lost costs time and nothing
// else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/build/part_file.h"
#include "launcher/build/stamped_hashes.h"

namespace hora::launcher {

class TreeMemory {
 public:
  // `folder` is the launcher's own (launcher_memory_folder()); empty: nothing is remembered.
  // `about` tells trees apart.
  TreeMemory(std::string folder, std::string_view about);

  // Gives the file its hash, if it is known.
  bool recall(PartFile& file) const;

  // A file that has its hash now, and is settled (is_settled()).
  void learn(const PartFile& file);
  // Keeps what is known of these files, and nothing else. The memory is used up by that.
  void save(const std::vector<PartFile>& files);

  // What is remembered has proved wrong: the next launch reads everything again.
  void forget() const;

 private:
  std::string folder_;
  std::string name_;
  StampedHashes entries_;  // by the path in the tree
  bool learnt_ = false;
};

}  // namespace hora::launcher
