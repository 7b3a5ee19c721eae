// Preparations of an agent before its first healing, so that stalls are short.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <set>

#include "corbd/core/gate.hpp"
#include "volume_map.hpp"

namespace corbd::volume {

class Preopener {
 public:
  Preopener(executor control, Clock& clock, const Ports& ports, const VolumeMap& volumes, const plan::Policy& policy)
      : control_(std::move(control)), clock_(clock), ports_(ports), volumes_(volumes), policy_(policy) {}
  /// Implements Shell::preopen().
  task<result<std::vector<std::string>>> preopen(Until until);
  task<> fence_early(Until until);
  task<std::map<std::string, std::string>> not_again(std::vector<std::string> volume_ids, Until until) const;
  /// Returns the credential that preopen() found in the volume's Secret instead of `loaded`, which the cluster refused,
  /// or which is empty.
  std::optional<Credential> instead_of(const std::string& volume_id, const Credential& loaded) const;

 private:
  struct Newer {
    Credential refused, taken;
  };
  struct Preopening;
  /// Result: whether a clusterID leads this user to the cluster with that fsid.
  struct Identified {
    std::string cluster_id, fsid;
    Credential as;
    result<> done;
    bool is_of(const Record& record, const Credential& credential) const {
      return cluster_id == record.source.cluster_id && fsid == record.key.fsid && as == credential;
    }
  };
  task<> await_policies(const std::vector<Record>& records, Until until);
  task<result<>> identify(std::vector<Identified>& known, const Record& record, const Credential& as,
                          Until until) const;
  task<> ask_for_api(Preopening& preopening, const std::string& volume_id);
  task<bool> has_other_name(Preopening& preopening, const Record& record, bool exclusive_lock);
  /// Adds the image to those that are opened, or to those that are not.
  task<> plan_one(Preopening& preopening, const Record& record, Until identifying);
  task<result<Preopening>> plan(Until until);
  task<> connect_ahead(image::Access access, std::size_t images, Until until);
  task<> preopen_images(Preopening& preopening);
  task<result<bool>> open_once(Preopening& preopening, const Record& record, image::Access access);
  task<result<>> may_write(Preopening& preopening, const image::Key& key, image::Access access);
  task<result<bool>> open_with_secret(Preopening& preopening, const Record& record, Credential refused, Error error);
  task<std::string> not_located(std::vector<Identified>& known, const Record& record, const Credential& as,
                                Until until) const;
  task<std::string> image_refused_again(const std::string& volume_id, std::int64_t pool,
                                        std::set<std::int64_t>& silent_pools, Until until) const;
  task<> fence_one(image::Access access, Until until);
  executor control_;
  Clock& clock_;
  const Ports& ports_;
  const VolumeMap& volumes_;
  const plan::Policy& policy_;
  std::map<std::string, Newer> newer_;  ///< by volume ID
  /// Members of this object, because a dying process ends coroutines in any order.
  std::list<Gate> gates_;
};

}  // namespace corbd::volume
