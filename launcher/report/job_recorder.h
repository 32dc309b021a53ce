// SPDX-License-Identifier: Apache-2.0
// Writes --report FILE: what is known of a job at its end. Takes as long as the file system does.
#pragma once

#include <string>

#include "launcher/report/job_report.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// JSON or a page, by the file's name.
bool is_page(const std::string& path);
Status write_report(const JobReport& report, const std::string& path);
// Never half a text.
Status write_public_file(const std::string& text, const std::string& path);

// The same for a text that only its owner may read.
Status write_private_file(const std::string& text, const std::string& path);

std::string rfc3339_now();

}  // namespace hora::launcher
