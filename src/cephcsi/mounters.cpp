#include "corbd/cephcsi/mounters.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>

#include "corbd/cephcsi/handle.hpp"
#include "corbd/core/text.hpp"

namespace corbd::cephcsi {
namespace {

namespace json = boost::json;

Error wrong_rules(const std::string& text) { return {errc::invalid_argument, "mounters.json: " + text}; }

result<> read_key(std::string_view key, const json::value& value, MounterRule& into, bool& named) {
  if (!value.is_string()) return wrong_rules("\"" + printable(key) + "\" is not a string");
  const std::string text(value.get_string());
  if (key == "clusterID") {
    into.cluster_id = text;
  } else if (key == "pool") {
    into.pool = text;
  } else if (key == "storageClass") {
    into.storage_class = text;
  } else if (key == "mounter") {
    if (text != "rbd" && text != "rbd-nbd")
      return wrong_rules("mounter '" + printable(text) + "' is not known: use rbd-nbd, or rbd for the kernel client");
    into.mounter = text == "rbd" ? Mounter::krbd : Mounter::nbd;
    named = true;
  } else {
    return wrong_rules("\"" + printable(key) + "\" is not known: use clusterID, pool, storageClass and mounter");
  }
  return {};
}

result<MounterRule> read_rule(const json::value& from) {
  if (!from.is_object()) return wrong_rules("it is not an object");
  MounterRule rule;
  bool named = false;
  for (const auto& entry : from.get_object())
    if (auto read = read_key(entry.key(), entry.value(), rule, named); !read) return read.error();
  if (!named) return wrong_rules("it has no \"mounter\"");
  return rule;
}

bool fits(const std::optional<std::string>& wanted, const std::string& value) { return !wanted || *wanted == value; }

}  // namespace

result<MounterRules> parse_mounter_rules(std::string_view text) {
  MounterRules rules;
  if (text.find_first_not_of(" \t\r\n") == text.npos) return rules;
  boost::system::error_code failed;
  const auto parsed = json::parse(text, failed);
  if (failed) return wrong_rules("not JSON: " + failed.message());
  if (!parsed.is_array()) return wrong_rules("not a list of rules");
  for (const auto& one : parsed.get_array()) {
    auto rule = read_rule(one);
    if (!rule) return with_context("rule " + std::to_string(rules.size() + 1), rule.error());
    rules.push_back(std::move(*rule));
  }
  return rules;
}

MounterCase mounter_case(const std::string& volume_id, const Attributes& attributes) {
  const auto value = [&](const char* key) {
    const auto place = attributes.find(key);
    return place == attributes.end() ? std::string() : place->second;
  };
  MounterCase of{value("clusterID"), value("pool"), std::nullopt};
  if (go_true(value("staticVolume"))) {
    const auto migrated = decode_migrated_handle(volume_id);
    if (of.cluster_id.empty() && migrated) of.cluster_id = migrated->cluster_id;
    if (of.pool.empty() && migrated) of.pool = migrated->pool;
  } else if (const auto handle = decode_handle(volume_id)) {
    of.cluster_id = handle->cluster_id;
  }
  return of;
}

MounterChoice choose_mounter(const MounterRules& rules, const MounterCase& of) {
  for (const auto& rule : rules) {
    if (!fits(rule.cluster_id, of.cluster_id) || !fits(rule.pool, of.pool)) continue;
    if (rule.storage_class && !of.storage_class) return {std::nullopt, true};
    if (rule.storage_class && *rule.storage_class != *of.storage_class) continue;
    return {rule.mounter, false};
  }
  return {};
}

}  // namespace corbd::cephcsi
