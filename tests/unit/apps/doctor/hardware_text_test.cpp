// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/hardware_text.h"

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

// Texts as drivers and nvidia-smi have printed them.

using namespace hora::doctor;

TEST_CASE("the version of the kernel's driver, of the closed module and the open one") {
  CHECK(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 "
                       "01:15:15 UTC 2023\n"
                       "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n") ==
        "535.104.05");
  CHECK(driver_version(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  "
            "(dvs-builder@U16-I3-C14-4-2)  Tue Mar  5 22:13:54 UTC 2024\n") == "550.54.15");
  CHECK(driver_version("NVRM version: NVIDIA UNIX aarch64 Kernel Module  570.133  x") == "570.133");
  CHECK(driver_version("").empty());
  CHECK(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module\n1.2\n").empty());
}

TEST_CASE("GPUs as nvidia-smi lists them") {
  const auto gpus = gpus_of(
      "NVIDIA H100 80GB HBM3, 535.104.05, 4, 81559, 0, 0\n"
      "NVIDIA H100 80GB HBM3, 535.104.05, 70211, 81559, 2, 97\n");
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0]["driver"] == "535.104.05");
  CHECK(gpus[1]["used_mib"] == 70211);
  CHECK(gpus[1]["ecc_errors"] == 2);
  const auto plain = gpus_of("NVIDIA GeForce RTX 4090, 550.54.15, 312, 24564, [N/A], 0\n");
  CHECK(plain[0]["ecc_errors"] == 0);
  CHECK(gpus_of("No devices were found\n").empty());
}

TEST_CASE("processes on GPUs are counted") {
  CHECK(count_processes("12345\n12399\n") == 2);
  CHECK(count_processes("") == 0);
  CHECK(count_processes("[Not Found]\n") == 0);
}
