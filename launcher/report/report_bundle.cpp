// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/report_bundle.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "launcher/report/clean_json.h"

namespace hora::launcher {

namespace {

using Json = nlohmann::ordered_json;

// Variables that change what a job does; of others not even the names are recorded.
constexpr std::array kRelevant = {
    std::string_view("HOROVOD_"), std::string_view("HORA_"), std::string_view("HORARUN_"),
    std::string_view("NCCL_"),    std::string_view("CUDA_"), std::string_view("OMP_"),
    std::string_view("OMPI_"),    std::string_view("UCX_"),  std::string_view("SLURM_"),
    std::string_view("PYTHON"),   std::string_view("LD_"),   std::string_view("LC_"),
    std::string_view("LANG"),     std::string_view("PATH"),  std::string_view("VIRTUAL_ENV")};

Result<Json> read_record(const std::string& text) {
  Json record = Json::parse(text, nullptr, false);
  if (!record.is_object() || !record.contains("schema") || !record.contains("hosts") ||
      !record["hosts"].is_array() || !record.contains("ranks")) {
    return make_error(ErrorCode::kUsage,
                      "it is not a record that horarun --report FILE.json has written");
  }
  return record;
}

}  // namespace

Result<std::vector<Host>> hosts_of_record(const std::string& text) {
  auto record = read_record(text);
  if (!record) return std::move(record).error();
  std::vector<Host> hosts;
  for (const Json& each : (*record)["hosts"]) {
    const auto name = each.is_object() ? each.find("name") : each.end();
    if (!each.is_object() || name == each.end() || !name->is_string()) {
      return make_error(ErrorCode::kUsage, "a host of the record has no name");
    }
    Host host;
    host.name = name->get<std::string>();
    if (const auto user = each.find("login"); user != each.end() && user->is_string()) {
      host.user = user->get<std::string>();
    }
    if (const auto port = each.find("port"); port != each.end() && port->is_number_integer()) {
      host.port = port->get<int>();
    }
    if (const auto slots = each.find("slots"); slots != each.end() && slots->is_number_integer()) {
      host.slots = slots->get<int>();
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

Result<std::string> bundle_report(const BundleParts& parts) {
  auto record = read_record(parts.record);
  if (!record) return std::move(record).error();
  Json out;
  out["schema"] = 1;
  out["version"] = parts.version;
  out["made_at"] = parts.made_at;
  out["record"] = std::move(*record);
  out["examination"] =
      parts.examination.empty() ? Json(nullptr) : Json::parse(parts.examination, nullptr, false);
  out["environment"] = Json::object();
  for (const auto& [name, value] : parts.environment) {
    const bool is_relevant =
        std::any_of(kRelevant.begin(), kRelevant.end(), [&, &key = name](std::string_view start) {
          return key.compare(0, start.size(), start) == 0;
        });
    if (is_relevant) out["environment"][name] = names_a_secret(name) ? "***" : value;
  }
  // The whole document once more: another version may have written the record, and a secret may
  // stand in any text of it, such as a command line or a rank's last words.
  clean_json(out, SecretFilter(parts.environment));
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hora::launcher
