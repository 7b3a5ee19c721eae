#include "corbd/cephcsi/claim.hpp"

namespace corbd::cephcsi {
namespace {

std::string text_at(const std::map<std::string, std::string>& from, const std::string& name) {
  const auto place = from.find("csi.storage.k8s.io/" + name);
  return place == from.end() ? "" : place->second;
}

}  // namespace

Claim claim_of(const std::map<std::string, std::string>& from) {
  return {text_at(from, "pvc/name"), text_at(from, "pvc/namespace"), text_at(from, "pv/name")};
}

std::string pod_of(const std::map<std::string, std::string>& attributes) {
  const std::string name = text_at(attributes, "pod.name");
  return name.empty() ? "" : text_at(attributes, "pod.namespace") + "/" + name;
}

}  // namespace corbd::cephcsi
