// SPDX-License-Identifier: Apache-2.0
// What `horarun doctor` prints.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/findings.h"

namespace hora::launcher::doctor {

// A verdict per host, then the findings: what, where, why it matters, the fix. `verbose`: notes
// too.
std::string report_text(const Examination& examination, const std::vector<Finding>& findings,
                        bool verbose);
// A page for people: the findings, the worst first, then a line for each host. Notes are folded.
std::string report_html(const Examination& examination, const std::vector<Finding>& findings);
// All of it as one document (docs/reference/doctor.md).
std::string report_json(const Examination& examination, const std::vector<Finding>& findings);

// 0: nothing, or nothing worse than warnings; 1: an error.
int exit_code_of(const std::vector<Finding>& findings);

std::string_view severity_name(Severity severity);

}  // namespace hora::launcher::doctor
