#include "corbd/csi/topology.hpp"

#include <set>
#include <vector>

#include "corbd/core/text.hpp"

namespace corbd::csi {
namespace {

constexpr std::size_t kMaxPrefix = 63;  // limit of Kubernetes for a label's name

Error bad_topology(std::string text) { return {errc::invalid_argument, std::move(text)}; }

std::vector<std::string> parts(std::string_view text) {
  std::vector<std::string> all;
  for (std::size_t comma = 0; comma != text.npos; text.remove_prefix(comma == text.npos ? 0 : comma + 1)) {
    comma = text.find(',');
    all.emplace_back(text.substr(0, comma));
  }
  return all;
}

}  // namespace

result<Labels> parse_labels(std::string_view text) {
  Labels labels;
  if (text.empty()) return labels;
  for (const auto& part : parts(text)) {
    const std::size_t equals = part.find('=');
    if (equals == part.npos || equals == 0) return bad_topology("--topology: '" + part + "' is not name=value");
    if (!labels.emplace(part.substr(0, equals), part.substr(equals + 1)).second)
      return bad_topology("--topology: label '" + part.substr(0, equals) + "' is given twice");
  }
  return labels;
}

result<> check_domain_labels(std::string_view driver, std::string_view domain_labels) {
  Labels all;
  for (const auto& label : parts(domain_labels)) all.emplace(label, "");
  const auto segments = topology_of(driver, domain_labels, all);
  if (!segments) return segments.error();
  return {};
}

result<Labels> topology_of(std::string_view driver, std::string_view domain_labels, const Labels& node_labels) {
  Labels segments;
  if (domain_labels.empty()) return segments;
  const std::string prefix = "topology." + lower(driver);
  if (prefix.size() > kMaxPrefix)
    return bad_topology("--domainlabels: '" + prefix + "' has " + std::to_string(prefix.size()) +
                        " bytes, but the prefix of a label may have at most 63: give the driver a shorter name");
  std::string missing;
  for (const auto& label : parts(domain_labels)) {
    const std::string name = label.substr(label.find('/') + 1);
    const auto value = node_labels.find(label);
    if (value == node_labels.end()) missing += (missing.empty() ? "'" : ", '") + label + "'";
    if (!segments.emplace(prefix + "/" + name, value == node_labels.end() ? "" : value->second).second)
      return bad_topology("--domainlabels: label '" + label +
                          "' is named twice, or another label ends with the same name");
  }
  if (!missing.empty()) return Error{errc::failed_precondition, "--domainlabels: the node has no label " + missing};
  return segments;
}

}  // namespace corbd::csi
