// SPDX-License-Identifier: Apache-2.0
// Facts that need a program to run: Python, the C library, NVIDIA's tools.
#include "software.h"

#include <future>

#include "child.h"
#include "gpu_text.h"
#include "python_questions.h"
#include "rendezvous/base/text.h"

namespace hora::doctor {

namespace {

Json python_facts(bool deep, std::chrono::milliseconds patience) {
  const Answer answer =
      ask({"python3", "-c", kPythonQuestions, deep ? "deep" : "versions"}, patience);
  Json out;
  if (answer.timed_out) {
    out["error"] = "python3 did not answer in time";
    return out;
  }
  // 127: not found; -1: it could not be started or did not exit by itself.
  if (answer.exit_code == 127 || answer.exit_code == -1) {
    out["error"] = "no python3 in PATH";
    return out;
  }
  // Python prints one JSON object.
  out = Json::parse(answer.output, nullptr, false);
  if (out.is_discarded() || !out.is_object()) {
    out = Json::object();
    out["error"] = "python3 ended with code " + std::to_string(answer.exit_code);
  }
  return out;
}

Json nvidia_facts(std::chrono::milliseconds patience) {
  const Answer answer = ask(
      {"nvidia-smi", std::string("--query-gpu=") + kGpuQuestions, "--format=csv,noheader,nounits"},
      patience);
  return answer.exit_code == 0 ? gpus_of(answer.output) : Json::array();
}

int gpu_processes(std::chrono::milliseconds patience) {
  const Answer answer =
      ask({"nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"}, patience);
  return answer.exit_code == 0 ? count_processes(answer.output) : -1;
}

}  // namespace

Json software_facts(bool deep, std::chrono::milliseconds patience) {
  Json out;
  // Python takes the longest, so it runs beside the others.
  auto python = std::async(std::launch::async, [=] { return python_facts(deep, patience); });
  const Answer libc = ask({"getconf", "GNU_LIBC_VERSION"}, patience);
  const std::string text(trim(libc.output));
  if (libc.exit_code == 0 && text.rfind("glibc ", 0) == 0) out["glibc"] = text.substr(6);
  out["nvidia"] = nvidia_facts(patience);
  if (!out["nvidia"].empty()) out["gpu_processes"] = gpu_processes(patience);
  out["python"] = python.get();
  return out;
}

}  // namespace hora::doctor
