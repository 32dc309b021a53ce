// SPDX-License-Identifier: Apache-2.0
// NVIDIA's numbers for faults of a GPU, with what a person should do. The row decides between three
// kinds of advice: the program is at fault, the GPU or its host is, or the Xid merely follows from
// another. The meanings are from NVIDIA's catalogue (kXidCatalogue); a number without a row gets
// its address.
#include "launcher/failures/xid_table.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kProgram =
    "look at the program first: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer names the kernel; if "
    "other programs do it "
    "on this GPU only, test the GPU (dcgmi diag -r 3)";
constexpr std::string_view kReset =
    "take the host out of use, reset the GPU (nvidia-smi --gpu-reset) or restart the host; if it "
    "comes again, have the "
    "GPU tested (dcgmi diag -r 3) and replaced";
constexpr std::string_view kLink =
    "nvidia-smi nvlink -e shows which link; reset the GPUs or restart the host; if it comes again, "
    "have the board, its "
    "bridges or its fabric manager looked at";
constexpr std::string_view kDriver =
    "restart the host, or reload the driver; with a newer driver if it comes again; "
    "nvidia-bug-report.sh for NVIDIA";
constexpr std::string_view kOther =
    "it follows from another fault or from the end of a process: look for the first Xid in the "
    "kernel's log (dmesg)";

// clang-format off
constexpr XidClass kClasses[] = {
    {8, "the GPU stopped processing", kReset},
    {13, "an exception in the compute engine, mostly an illegal access or instruction of the program", kProgram},
    {31, "a memory page fault: the program used an address of the GPU that is not its own", kProgram},
    {32, "a damaged stream of commands to the GPU: the driver, the bus, or memory", kDriver},
    {38, "an error in the driver's firmware", kDriver},
    {43, "the GPU dropped the program's work because of a fault of the program; the GPU itself is well", kProgram},
    {44, "a fault while the GPU changed from one program to another", kReset},
    {45, "the program's work on the GPU was removed", kOther},
    {46, "the GPU stopped processing", kReset},
    {48, "an uncorrectable (double bit) error of the GPU's memory", kReset},
    {61, "a breakpoint in the GPU's internal controller", kReset},
    {62, "the GPU's internal controller halted", kReset},
    {63, "the GPU marked a bad part of its memory, to be left out from its next reset on",
     "the job may go on; reset the GPU (nvidia-smi --gpu-reset) when it is free"},
    {64, "the GPU could not mark a bad part of its memory", kReset},
    {69, "an exception in the compute engine: a class of commands that it does not have", kProgram},
    {74, "an NVLink failed", kLink},
    {79, "the GPU has fallen off the bus: the host cannot reach it any more",
     "power-cycle the host; if it happens again, check power supply, cooling, seating and the GPU"},
    {92, "many correctable errors of the GPU's memory", "have the GPU tested (dcgmi diag -r 3)"},
    {94, "an uncorrectable memory error that only this program suffered",
     "start the job again; reset the GPU (nvidia-smi --gpu-reset) when it is free"},
    {95, "an uncorrectable memory error that may have spoilt the work of every program on the GPU", kReset},
    {109, "the GPU did not change from one program to another in time", kReset},
    {119, "the GPU's system processor did not answer the driver (GSP RPC timeout)", kReset},
    {120, "the GPU's system processor failed (GSP error)", kReset},
    {121, "corrected errors on the link between CPU and GPU (C2C)",
     "the job may go on; reset the GPU when it is free if they come again"},
    {137, "an NVLink access to another GPU's memory was refused, mostly as the program there had failed before",
     "look at the rank that failed first, and at the other GPUs' Xids; this one is mostly the victim"},
    {140, "uncorrectable memory errors of the GPU", kReset},
    {143, "the GPU could not be initialized", kReset},
    {144, "an NVLink failed (SAW)", kLink},
    {145, "an NVLink failed (RLW)", kLink},
    {149, "an NVLink failed (NETIR)", kLink},
    {150, "an NVLink failed (MSE)", kLink},
    {154, "the driver says what the GPU needs to work again", "do what the message says"},
};
// clang-format on

}  // namespace

std::span<const XidClass> xid_classes() { return kClasses; }

const XidClass* find_xid(int code) {
  for (const XidClass& each : kClasses) {
    if (each.code == code) return &each;
  }
  return nullptr;
}

}  // namespace hora::launcher
