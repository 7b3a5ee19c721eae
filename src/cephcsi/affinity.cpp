#include "corbd/cephcsi/affinity.hpp"

#include <algorithm>

#include "corbd/core/text.hpp"

namespace corbd::cephcsi {
namespace {

bool is_word(std::string_view text) {
  constexpr std::string_view also = "-_.";
  return !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
    return std::isalnum(c) != 0 || also.find(static_cast<char>(c)) != also.npos;
  });
}

}  // namespace

std::string crush_location(const std::map<std::string, std::string>& node_labels,
                           const std::vector<std::string>& wanted) {
  std::map<std::string, std::string> places;
  for (const auto& label : wanted) {
    const auto found = node_labels.find(label);
    if (found == node_labels.end() || found->second.empty()) continue;
    std::string type = label.substr(label.rfind('/') + 1), value = found->second;
    if (type == "hostname") type = "host";
    std::replace(value.begin(), value.end(), '.', '-');
    places[type] = value;
  }
  std::string text;
  for (const auto& [type, value] : places) text += (text.empty() ? "" : "|") + type + ":" + value;
  return text;
}

result<ReadPolicy> read_policy(const Affinity& wished, const result<std::map<std::string, std::string>>& labels) {
  if (!wished.of_cluster) return ReadPolicy();
  if (wished.balance) return ReadPolicy{.balance = true};
  const bool by_labels = !wished.cluster_labels.empty() || wished.of_node;
  if (!wished.location.empty() || !by_labels) return ReadPolicy{.location = wished.location};
  if (!labels) return labels.error();
  auto location = crush_location(*labels, wished.cluster_labels.empty() ? wished.node_labels : wished.cluster_labels);
  if (location.empty())
    return Error{errc::failed_precondition, "this node has none of the labels that give its place in the CRUSH map"};
  return ReadPolicy{.location = std::move(location)};
}

std::vector<std::string> label_names(std::string_view list) {
  std::vector<std::string> names;
  for (const auto name : pieces(list, ','))
    if (const auto plain = trimmed(name); !plain.empty()) names.emplace_back(plain);
  return names;
}

result<> check_crush_location(std::string_view text) {
  for (const auto place : pieces(text, '|')) {
    const auto colon = place.find(':');
    if (colon == place.npos || !is_word(place.substr(0, colon)) || !is_word(place.substr(colon + 1)))
      return Error{errc::invalid_argument,
                   "'" + printable(place) + "' is not a place in a CRUSH map: write host:node-1|zone:z1"};
  }
  return {};
}

std::string with_policy(std::string kernel_options, const ReadPolicy& policy) {
  if (kernel_options.find("read_from_replica") != kernel_options.npos) return kernel_options;
  const std::string more = policy.balance            ? "read_from_replica=balance"
                           : policy.location.empty() ? ""
                                                     : "read_from_replica=localize,crush_location=" + policy.location;
  return kernel_options + (kernel_options.empty() || more.empty() ? "" : ",") + more;
}

std::map<std::string, std::string> with_policy(std::map<std::string, std::string> config, const ReadPolicy& policy) {
  constexpr const char *kPolicy = "rbd_read_from_replica_policy", *kLocalize = "localize";
  if (policy.balance)
    config.try_emplace(kPolicy, "balance");
  else if (!policy.location.empty())
    config.try_emplace(kPolicy, kLocalize);
  const auto chosen = config.find(kPolicy);
  if (policy.location.empty() || chosen->second != kLocalize) return config;
  std::string places = policy.location;  // librados takes "host=node-1 zone=z1"
  std::replace(places.begin(), places.end(), ':', '=');
  std::replace(places.begin(), places.end(), '|', ' ');
  config.try_emplace("crush_location", places);
  return config;
}

}  // namespace corbd::cephcsi
