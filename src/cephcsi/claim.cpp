#include "corbd/cephcsi/claim.hpp"

#include <algorithm>

namespace corbd::cephcsi {
namespace {

constexpr std::size_t kLongest = 253;  // DNS subdomain: Kubernetes' limit for all these names

/// Anybody who may write to the image can write its metadata. A record or a metric must be able to hold the names that
/// this accepts.
bool is_name(const std::string& text) {
  return text.size() <= kLongest && std::ranges::all_of(text, [](char at) {
           return (at >= 'a' && at <= 'z') || (at >= '0' && at <= '9') || at == '.' || at == '-';
         });
}

std::string text_at(const std::map<std::string, std::string>& from, const std::string& name) {
  const auto place = from.find("csi.storage.k8s.io/" + name);
  return place == from.end() || !is_name(place->second) ? "" : place->second;
}

}  // namespace

PvcRef pvc_of(const std::map<std::string, std::string>& from) {
  return {text_at(from, "pvc/name"), text_at(from, "pvc/namespace"), text_at(from, "pv/name")};
}

std::string pod_of(const std::map<std::string, std::string>& attributes) {
  const std::string name = text_at(attributes, "pod.name");
  return name.empty() ? "" : text_at(attributes, "pod.namespace") + "/" + name;
}

std::string pod_uid_of(const std::map<std::string, std::string>& attributes) { return text_at(attributes, "pod.uid"); }

}  // namespace corbd::cephcsi
