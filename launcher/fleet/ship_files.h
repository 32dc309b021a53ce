// SPDX-License-Identifier: Apache-2.0
// What --ship and --ship-env name: files, packed once for all hosts, and folders, read and hashed.
// Never changes once it is made: the links of all hosts share the frames, which live as long as the
// last of them needs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/build/python_environment.h"
#include "launcher/build/user_tree.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

class ShipFiles {
 public:
  ShipFiles() = default;
  // Reads and packs them. For large files this takes longer than agents bear silence, so it happens
  // before any host is connected. `memory_folder` is the launcher's own: TreeMemory.
  ShipFiles(const JobSpec& spec, const std::string& memory_folder);

  // Why something could not be packed.
  const Status& status() const { return status_; }
  const std::vector<std::shared_ptr<const std::string>>& frames() const { return frames_; }
  // All folders together; without parts: there is none.
  const UserTree& tree() const { return tree_; }
  const std::optional<PythonEnvironment>& environment() const { return environment_; }
  const UserTree& environment_tree() const { return environment_tree_; }
  // Whose parts there are: "--ship", "--ship-env", or both.
  std::string options() const;
  bool has_parts() const { return !tree_.parts.empty() || !environment_tree_.parts.empty(); }
  // Of either tree; null: neither has it.
  const TreePart* find_part(const std::string& hash) const;
  // A part could not be packed as it was read: nothing that is remembered counts any more.
  void forget() const;

 private:
  Status pack_environment(const JobSpec& spec, const std::string& memory_folder);
  Status pack(const JobSpec& spec, const std::string& memory_folder);

  std::vector<std::shared_ptr<const std::string>> frames_;
  UserTree tree_;
  std::optional<PythonEnvironment> environment_;
  UserTree environment_tree_;
  std::vector<TreeMemory> memories_;
  Status status_ = Ok{};
};

}  // namespace hora::launcher
