// Shows the forecast, and parses texts of files and secrets. Pure, but for the printing.
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <iostream>

#include "corbd/core/base64.hpp"
#include "corbd/core/display.hpp"
#include "corbd/rpc/json.hpp"
#include "inputs.hpp"

namespace corbd::migration {
namespace {

namespace json = boost::json;

Grade worst_of(const std::vector<Finding>& findings) { return static_cast<Grade>(doctor::exit_code(findings)); }

std::string column(std::string text, std::size_t width) {
  text.resize(width, ' ');
  return text;
}

void print_finding(const Finding& finding, const std::string& indent) {
  std::cout << indent << column(doctor::word(finding.verdict), 6) << for_terminal(finding.check) << ": "
            << for_terminal(finding.said) << "\n";
  if (!finding.remedy.empty()) std::cout << indent << "      -> " << for_terminal(finding.remedy) << "\n";
}

void print_volume(const VolumeForecast& volume) {
  std::cout << column(doctor::word(worst_of(volume.findings)), 6) << cell(volume.volume_id) << "\n";
  const auto row = [](const char* name, const std::string& value) {
    if (!value.empty()) std::cout << "      " << column(name, 12) << for_terminal(value) << "\n";
  };
  row("claim", volume.claim);
  row("volume", volume.persistent_volume);
  row("staged at", volume.path);
  row("device", volume.device);
  row("now", volume.now);
  row("after", volume.after);
  row("next stage", volume.next_stage);
  for (const auto& question : volume.not_known) row("not known", question + ": only Ceph tells");
  for (const auto& finding : volume.findings) print_finding(finding, "      ");
}

json::object json_of_volume(const VolumeForecast& volume) {
  return {{"volume_id", volume.volume_id},
          {"claim", volume.claim},
          {"persistent_volume", volume.persistent_volume},
          {"staging_path", volume.path},
          {"device", volume.device},
          {"now", volume.now},
          {"after", volume.after},
          {"next_stage", volume.next_stage},
          {"not_known", json::value_from(volume.not_known)},
          {"verdict", doctor::json_word(worst_of(volume.findings))},
          {"findings", doctor::report(volume.findings)}};
}

void print_json(const Forecast& forecast, bool back) {
  json::array volumes;
  for (const auto& volume : forecast.volumes) volumes.push_back(json_of_volume(volume));
  std::cout << json::serialize(rpc::document({{"before", back ? "rollback" : "migration"},
                                              {"verdict", doctor::json_word(static_cast<Grade>(exit_code(forecast)))},
                                              {"node", doctor::report(forecast.node)},
                                              {"volumes", std::move(volumes)}}))
            << "\n";
}

void print_text(const Forecast& forecast, bool back) {
  for (const auto& finding : forecast.node) print_finding(finding, "");
  for (const auto& volume : forecast.volumes) print_volume(volume);
  const std::string change = back ? "ceph-csi replaces corbd" : "corbd replaces ceph-csi";
  const std::string count = std::to_string(forecast.volumes.size()) + " staged volume(s). ";
  constexpr const char* ends[] = {"Nothing stands in the way.",
                                  "I/O waits for a while, or something is not known: see WARN.",
                                  "Do not go on: I/O would wait until you act, or volumes would be stuck. See FAIL."};
  std::cout << count << "When " << change << " on this node: " << ends[exit_code(forecast)] << "\n";
}

/// Returns unknown for a text that is no key. A key's secret begins after 12 bytes.
KeyType type_of(const Secret& key) {
  auto bytes = from_base64(key.reveal());
  const bool whole = bytes && bytes->size() >= 12;
  if (bytes) wipe(*bytes);
  return whole ? cephcsi::key_type(key.reveal()) : KeyType::unknown;
}

}  // namespace

StageSecret read_stage_secret(const std::map<std::string, Secret>& data) {
  const auto value = [&](const char* name) {
    const auto found = data.find(name);
    return found == data.end() ? Secret() : found->second;
  };
  StageSecret made;
  // The secret of a volume of kubelet's own plugin has only the key (docs/sources.md#migrated).
  const Secret migrated = value("key");
  const Secret key = migrated.empty() ? value("userKey") : migrated;
  made.user = !migrated.empty() || !value("userID").empty();
  made.key = !key.empty();
  made.passphrase = !value("encryptionPassphrase").empty();
  made.key_type = type_of(key);
  return made;
}

int exit_code(const Forecast& forecast) {
  int worst = doctor::exit_code(forecast.node);
  for (const auto& volume : forecast.volumes) worst = std::max(worst, doctor::exit_code(volume.findings));
  return worst;
}

int check_migration(const Options& options) {
  const bool back = options.rollback;
  const auto inputs = gather(options);
  const auto forecast = back ? forecast_rollback(inputs) : forecast_migration(inputs);
  options.output == "json" ? print_json(forecast, back) : print_text(forecast, back);
  std::cout.flush();
  return exit_code(forecast);
}

}  // namespace corbd::migration
