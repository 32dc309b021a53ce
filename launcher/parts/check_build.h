// SPDX-License-Identifier: Apache-2.0
// horarun --check-build: looks at this installation as it is now, by loading what a rank would
// load. That happens in child processes, each of which has a deadline.
#pragma once

#include <string>

#include "launcher/parts/build_facts.h"

namespace hora::launcher {

// `bundle_directory`: share/hora/<machine>/bundle of this installation; `installation_error` when
// there is none.
BuildFacts collect_build_facts(const std::string& bundle_directory,
                               const std::string& installation_error);

// Describes the installation that this program belongs to.
// `as_horovodrun`: under the heading that scripts parse to learn Horovod's version.
std::string check_build_text(bool verbose, bool as_horovodrun);
std::string check_build_json();

}  // namespace hora::launcher
