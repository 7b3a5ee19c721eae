#include "corbd/kube/objects.hpp"
#include "corbd/core/utc.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <ctime>

#include "corbd/core/base64.hpp"
#include "corbd/core/file.hpp"
#include "fields.hpp"

namespace corbd::kube {
namespace {

namespace json = boost::json;

template <class... Path>
bool is_true(const json::object& object, Path... path) {
  const auto* value = at(object, path...);
  return value != nullptr && value->is_bool() && value->get_bool();
}

template <class... Path>
std::map<std::string, std::string> texts(const json::object& object, Path... path) {
  std::map<std::string, std::string> all;
  const auto* value = at(object, path...);
  if (value == nullptr || !value->is_object()) return all;
  for (const auto& [name, one] : value->get_object())
    if (one.is_string()) all.emplace(std::string(name), std::string(one.get_string()));
  return all;
}

template <class... Path>
const json::array& array(const json::object& object, Path... path) {
  static const json::array none;
  const auto* value = at(object, path...);
  return value != nullptr && value->is_array() ? value->get_array() : none;
}

template <class... Path>
std::vector<std::string> list(const json::object& object, Path... path) {
  std::vector<std::string> all;
  for (const auto& one : array(object, path...))
    if (one.is_string()) all.emplace_back(one.get_string());
  return all;
}

template <class... Path>
std::optional<Reference> reference(const json::object& object, Path... path) {
  const auto* value = at(object, path...);
  if (value == nullptr || !value->is_object()) return std::nullopt;
  Reference found{text(value->get_object(), "name"), text(value->get_object(), "namespace"),
                  text(value->get_object(), "uid")};
  if (found.name.empty()) return std::nullopt;
  return found;
}

/// The server writes whole seconds of UTC: "2026-11-21T21:00:00Z".
template <class... Path>
std::optional<std::chrono::system_clock::time_point> time(const json::object& object, Path... path) {
  return utc_of(text(object, path...));
}

}  // namespace

Resource secrets_of(const std::string& name_space) {
  return {"/api/v1/namespaces/" + name_space + "/secrets", "secrets"};
}

Resource config_maps_of(const std::string& name_space) {
  return {"/api/v1/namespaces/" + name_space + "/configmaps", "configmaps"};
}

Resource tokens_of(const std::string& name_space, const std::string& service_account) {
  return {"/api/v1/namespaces/" + name_space + "/serviceaccounts/" + service_account + "/token",
          "serviceaccounts/token"};
}

Node node_of(const json::object& object) {
  Node node;
  node.name = name_of(object);
  node.uid = text(object, "metadata", "uid");
  node.labels = texts(object, "metadata", "labels");
  for (const auto& one : array(object, "status", "volumesAttached"))
    if (one.is_object()) node.volumes_attached.push_back(text(one.get_object(), "name"));
  for (const auto& one : array(object, "status", "addresses"))
    if (one.is_object() && text(one.get_object(), "type") == "InternalIP")
      node.addresses.push_back(text(one.get_object(), "address"));
  for (const auto& one : array(object, "status", "conditions")) {
    if (!one.is_object() || text(one.get_object(), "type") != "Ready") continue;
    node.ready = text(one.get_object(), "status") == "True";
    node.ready_since = text(one.get_object(), "lastTransitionTime");
  }
  for (const auto& taint : array(object, "spec", "taints"))
    if (taint.is_object()) node.taints.push_back(text(taint.get_object(), "key"));
  node.out_of_service = std::ranges::find(node.taints, "node.kubernetes.io/out-of-service") != node.taints.end();
  return node;
}

std::string name_of(const json::object& object) { return text(object, "metadata", "name"); }

std::string attached_name(const std::string& handle, const std::string& driver) {
  return "kubernetes.io/csi/" + driver + "^" + handle;
}

VolumeAttachment volume_attachment_of(const json::object& object) {
  VolumeAttachment found;
  found.uid = text(object, "metadata", "uid");
  found.attacher = text(object, "spec", "attacher");
  found.node = text(object, "spec", "nodeName");
  found.volume = text(object, "spec", "source", "persistentVolumeName");
  found.attached = is_true(object, "status", "attached");
  found.deleting = at(object, "metadata", "deletionTimestamp") != nullptr;
  found.created = time(object, "metadata", "creationTimestamp");
  found.metadata = texts(object, "status", "attachmentMetadata");
  return found;
}

bool attaches(const json::object& driver) {
  const auto* required = at(driver, "spec", "attachRequired");
  return required == nullptr || !required->is_bool() || required->get_bool();
}

bool lists_driver(const json::object& csi_node, const std::string& driver) {
  return std::ranges::any_of(array(csi_node, "spec", "drivers"), [&](const auto& one) {
    return one.is_object() && text(one.get_object(), "name") == driver;
  });
}

json::array without_taint(const json::object& node, const std::string& key) {
  const auto& taints = array(node, "spec", "taints");
  json::array operations;
  // From the last one on, so that each keeps its place until its turn.
  for (std::size_t at = taints.size(); at-- > 0;) {
    if (!taints[at].is_object() || text(taints[at].get_object(), "key") != key) continue;
    const std::string path = "/spec/taints/" + std::to_string(at);
    operations.push_back(json::object{{"op", "test"}, {"path", path}, {"value", taints[at]}});
    operations.push_back(json::object{{"op", "remove"}, {"path", path}});
  }
  return operations;
}

std::string volume_attachment_name(const std::string& handle, const std::string& driver, const std::string& node) {
  return "csi-" + sha256_hex(handle + driver + node);
}

PersistentVolume persistent_volume_of(const json::object& object) {
  PersistentVolume found;
  found.name = text(object, "metadata", "name");
  found.uid = text(object, "metadata", "uid");
  found.driver = text(object, "spec", "csi", "driver");
  found.handle = text(object, "spec", "csi", "volumeHandle");
  found.fstype = text(object, "spec", "csi", "fsType");
  found.storage_class = text(object, "spec", "storageClassName");
  found.bound = text(object, "status", "phase") == "Bound";
  found.mode = text(object, "spec", "volumeMode");
  found.read_only = is_true(object, "spec", "csi", "readOnly");
  found.access_modes = list(object, "spec", "accessModes");
  found.mount_options = list(object, "spec", "mountOptions");
  found.attributes = texts(object, "spec", "csi", "volumeAttributes");
  found.node_stage_secret = reference(object, "spec", "csi", "nodeStageSecretRef");
  found.claim = reference(object, "spec", "claimRef");
  return found;
}

std::map<std::string, Secret> data_of_secret(const json::object& object) {
  std::map<std::string, Secret> all;
  for (auto& [name, encoded] : texts(object, "data")) {
    if (auto decoded = from_base64(encoded)) all.emplace(name, Secret(std::move(*decoded)));
    wipe(encoded);
  }
  return all;
}

std::map<std::string, std::string> data_of_config_map(const json::object& object) { return texts(object, "data"); }

json::object token_request(const std::vector<std::string>& audiences) {
  json::object spec;
  json::array all;
  for (const auto& one : audiences) all.emplace_back(one);
  if (!all.empty()) spec["audiences"] = std::move(all);
  return {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}, {"spec", std::move(spec)}};
}

Secret token_of(const json::object& object) { return Secret(text(object, "status", "token")); }

}  // namespace corbd::kube
