// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/cpu_text.h"

#include <string>

#include "tests/support/catch.h"

using hora::doctor::cpu_model;

TEST_CASE("cpu text: the model of a processor") {
  CHECK(cpu_model("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\n"
                  "model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz\n") ==
        "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz");
  const std::string arm =
      "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd asimdhp\n"
      "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n";
  CHECK(cpu_model(arm + "CPU part\t: 0xd4f\nCPU revision\t: 0\n") == "Neoverse V2");
  CHECK(cpu_model(arm + "CPU part\t: 0xfff\n") == "implementer 0x41, part 0xfff");
  CHECK(cpu_model(arm).empty());
  CHECK(cpu_model("").empty());
}
