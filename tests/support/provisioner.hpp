// Does a ceph-csi provisioner's work in a cluster: an image, and the journal that leads from a volume's handle to it
// (docs/sources.md#journal). It follows that page, not the agent's own code, except for the handle's encoding.
#pragma once

#include <rados/librados.h>

#include <map>
#include <optional>
#include <string>

namespace corbd::test {

struct NewVolume {
  std::string name;  ///< name in the request, "pvc-1"
  std::string pool;
  std::string journal_pool = {};  ///< "": the image's; another one with topology
  std::string ns = {};            ///< RADOS namespace, which must exist
  std::string prefix = "csi-vol-";
  std::uint64_t size = 64 << 20;  ///< bytes
  std::string kms = {};           ///< if set, the volume is called encrypted; the image is not
};

struct NewHandle {
  std::string volume_id, uuid, image;
  std::int64_t pool_id = -1;
  std::map<std::string, std::string> context;  ///< attributes of the PersistentVolume
};

/// Errors are exceptions.
class Provisioner {
 public:
  Provisioner(rados_t cluster, std::string cluster_id) : cluster_(cluster), cluster_id_(std::move(cluster_id)) {}
  NewHandle create(const NewVolume& wanted);
  /// The volume that was created by that name; its size is that of its image.
  struct Known {
    NewHandle handle;
    std::uint64_t size = 0;  ///< bytes
  };
  std::optional<Known> find(const NewVolume& wanted) const;
  void remove(const NewVolume& wanted, const NewHandle& made);
  /// Removes it from its own pool and the default namespace; fine if there is none.
  void remove(const std::string& volume_id);

 private:
  NewHandle handle(const NewVolume& wanted, std::string uuid) const;
  rados_t cluster_;
  std::string cluster_id_;
};

/// Returns all keys of a volume's journal; nothing if there is none.
std::map<std::string, std::string> journal_of(rados_t cluster, const std::string& pool, const std::string& ns,
                                              const std::string& uuid);
void forget_in_journal(rados_t cluster, const std::string& pool, const std::string& ns, const std::string& uuid,
                       const std::string& remove_key);
void remove_journal(rados_t cluster, const std::string& pool, const std::string& ns, const std::string& uuid);

}  // namespace corbd::test
