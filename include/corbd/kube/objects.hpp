// The few objects of the API that the agent reads, as far as it reads them. A field that is absent, or has another type
// than it should, is empty: the server, or an older one, may leave out anything (docs/sources.md#persistent-volume).
// Pure.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/secret.hpp"
#include "corbd/kube/api.hpp"

namespace corbd::kube {

inline const Resource kNodes{"/api/v1/nodes", "nodes"};
inline const Resource kPersistentVolumes{"/api/v1/persistentvolumes", "persistentvolumes"};
inline const Resource kVolumeAttachments{"/apis/storage.k8s.io/v1/volumeattachments",
                                         "volumeattachments.storage.k8s.io"};
inline const Resource kCSINodes{"/apis/storage.k8s.io/v1/csinodes", "csinodes.storage.k8s.io"};
inline const Resource kDrivers{"/apis/storage.k8s.io/v1/csidrivers", "csidrivers.storage.k8s.io"};
Resource secrets_of(const std::string& name_space);
Resource config_maps_of(const std::string& name_space);
/// Creating one makes a token of that service account (TokenRequest).
Resource tokens_of(const std::string& name_space, const std::string& service_account);

struct Node {
  std::string name, uid;
  std::map<std::string, std::string> labels;
  std::vector<std::string> volumes_attached;  ///< "kubernetes.io/csi/<driver>^<handle>"
  std::vector<std::string> addresses;         ///< internal IPs: "10.0.0.7". Several nodes may share an external one
  std::optional<bool> ready;                  ///< nothing: the node's status does not say
  std::string ready_since;                    ///< since when the node is ready, or not
  std::vector<std::string> taints;            ///< their keys
  bool out_of_service = false;  ///< by its taint: the cluster assumes it dead, and detaches its volumes by force
};
Node node_of(const boost::json::object& object);
/// Returns the name of any object; empty if it has none.
std::string name_of(const boost::json::object& object);
/// Returns the volume's name in a Node's status.
std::string attached_name(const std::string& handle, const std::string& driver);

struct VolumeAttachment {
  std::string uid, attacher, node, volume;  ///< volume: the PersistentVolume; empty for one inline in a pod
  bool attached = false, deleting = false;
  std::optional<std::chrono::system_clock::time_point> created;
  std::map<std::string, std::string> metadata;  ///< the publish context
};
VolumeAttachment volume_attachment_of(const boost::json::object& object);
/// Computes the attach-detach controller's name: "csi-" and the sha256 of volume ID, driver and node.
std::string volume_attachment_name(const std::string& handle, const std::string& driver, const std::string& node);

/// Whether Kubernetes attaches the volumes of a CSIDriver. It does, unless the object says otherwise.
bool attaches(const boost::json::object& driver);

/// Whether kubelet has registered the driver, by the node's CSINode.
bool lists_driver(const boost::json::object& csi_node, const std::string& driver);

/// Returns a JSON patch that removes every taint of that key from a Node, each only if it still is where it was read.
/// Others write taints at the same time. Empty: there is no such taint.
boost::json::array without_taint(const boost::json::object& node, const std::string& key);

struct Reference {
  std::string name, name_space;
  std::string uid = {};  ///< UID of a claim
};

struct PersistentVolume {
  std::string name, uid, driver, handle, fstype;  ///< driver empty: it is no CSI volume
  std::string storage_class;                      ///< empty: it has none
  std::string mode;                               ///< "Filesystem", "Block", or empty: a filesystem
  bool bound = false, read_only = false;  ///< a volume that is being deleted stays bound as long as its claim exists
  std::vector<std::string> access_modes, mount_options;
  std::map<std::string, std::string> attributes;
  std::optional<Reference> node_stage_secret, claim;
};
PersistentVolume persistent_volume_of(const boost::json::object& object);

/// Returns the decoded data. Leaves out values that are not base64.
std::map<std::string, Secret> data_of_secret(const boost::json::object& object);
std::map<std::string, std::string> data_of_config_map(const boost::json::object& object);

/// Requests a token for an hour, the default. Without audiences it is for the API server.
boost::json::object token_request(const std::vector<std::string>& audiences);
/// Returns the token of the answer; empty if it has none.
Secret token_of(const boost::json::object& object);

}  // namespace corbd::kube
