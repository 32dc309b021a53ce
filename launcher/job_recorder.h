// Writes --report FILE: what is known of a job at its end.
#pragma once

#include <string>

#include "launcher/job_report.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// JSON or a page, by the file's name. Written beside and renamed: never half a report.
Status write_report(const JobReport& report, const std::string& path);

std::string rfc3339_now();

}  // namespace hora::launcher
