// SPDX-License-Identifier: Apache-2.0
// The files of a part of a bundle, below a private directory of ours. Calls take as long as the
// file system does.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// No path, and no link, may lead out of the directory. Errors: kUsage.
Status check_paths(const std::vector<BundleFile>& files);

// The folders that `path` needs. Files come in order of their paths, so most share the folder of
// the one before, `last_parent`.
Status make_parents(int directory, const std::string& shown_path, const std::string& path,
                    std::string& last_parent);

mode_t permissions_of(const BundleFile& file);

bool is_folder(const BundleFile& file);
// One that is there already is as good.
Status make_folder(int directory, const std::string& shown_path, const BundleFile& file);

// Presence, type and size, not contents: those were checked on arrival, and reading them at each
// start would cost more than it protects from.
bool are_whole(int directory, const std::vector<BundleFile>& files);

// Puts the files of `from` into `to` as well: by hard links, or by copies where the file system, or
// its being another one, allows no link.
Status adopt_files(int from, int to, const std::string& shown_path,
                   const std::vector<BundleFile>& files);

// The same by copies, for a directory that somebody else will write to. Shares the blocks where the
// file system can.
Status copy_files(int from, int to, const std::string& shown_path,
                  const std::vector<BundleFile>& files);

}  // namespace hora::launcher
