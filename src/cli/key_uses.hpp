// Sorts the volumes of an agent by the Ceph users and keys that serve them, for `corbd keys`. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/v1/admin.pb.h"

namespace corbd::cli {

/// A Ceph user and key that volumes or devices of this node have.
struct UsedKey {
  std::string cluster_id;  ///< empty: unknown, of a device of the kernel's client without a record
  v1::CephKey key;
  std::vector<std::string> used_by;  ///< volume IDs; paths of devices without a record
};

/// A volume that is to have another user or key than it has.
struct Moving {
  std::string volume_id, device;
  v1::CephKey key, next;  ///< `next` is empty if nobody knows it
  std::string why_not;    ///< empty: it is about to have it
};

struct KeyUses {
  std::vector<UsedKey> keys;         ///< by cluster, user and fingerprint
  std::vector<Moving> moving;        ///< by volume ID
  std::vector<std::string> unknown;  ///< devices whose Ceph user this agent does not know, or why some are missing
  std::map<std::string, std::set<std::string>> needed;  ///< by Ceph user: volumes and devices that need it
};
KeyUses key_uses(const v1::ListVolumesResponse& volumes);

std::string keys_table(const KeyUses& uses);
boost::json::object keys_document(const KeyUses& uses);

/// Whether this node needs a Ceph user.
struct UserVerdict {
  bool needed = true;  ///< also if that is not known
  std::string text;    ///< one line
};
/// `user`: without "client."
UserVerdict judge_user(const KeyUses& uses, const std::string& user);

}  // namespace corbd::cli
