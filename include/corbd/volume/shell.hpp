// The thin shell around the planner. It takes the volume's lock, asks the planner, carries the step out through a port,
// and repeats.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/device/device.hpp"
#include "corbd/device/kernel_client.hpp"
#include "corbd/host/daemons.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/luks.hpp"
#include "corbd/image/image.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/plan/planner.hpp"
#include "corbd/volume/record_store.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::volume {

struct Cluster {
  std::vector<std::string> monitors;
  std::string rados_namespace;
  std::string crush_location = {};  ///< "host:a|zone:b": read from the OSD nearest to this place; "": from the primary
  std::vector<std::string> ignored = {};  ///< a sentence for each setting that has no effect
};

inline task<Attachment> no_attachment(std::string) { co_return Attachment{}; }

/// Everything that the shell acts through. Every port outlives the shell.
struct Ports {
  image::Clusters& clusters;
  device::Devices& devices;
  device::KernelClient& kernel;
  host::Mounts& mounts;
  host::Filesystems& filesystems;
  host::Daemons& daemons;
  host::Luks& luks;
  kms::Kms& kms;
  RecordStore& records;
  /// The cluster's entry in config.json, read anew each time.
  std::function<result<Cluster>(const std::string& cluster_id)> find_cluster;
  /// Checks that the path is below kubelet's folder and free of links (host::check_path). Staging paths must exist.
  std::function<task<result<>>(std::string path, bool must_exist)> check_path;
  /// image-meta.json in the staging path (volume/stash_file.hpp).
  std::function<task<result<std::optional<cephcsi::Stash>>>(std::string staging_path)> read_stash;
  std::function<task<result<>>(std::string staging_path, cephcsi::Stash stash)> write_stash;
  /// `log`: rbd-nbd's log file, which is removed too (volume/stash_file.hpp); "": none.
  std::function<task<result<>>(std::string staging_path, std::string log)> drop_stash;
  /// Whether a helper of an earlier agent holds the file.
  std::function<bool(const std::string& busy_file)> busy;
  /// The other places of cluster-mapping.json, in the order to try. The file is read anew each time.
  std::function<result<std::vector<image::Place>>(const image::Place& of)> mapped_places = [](const image::Place&) {
    return std::vector<image::Place>();
  };
  std::function<result<std::vector<std::string>>(const std::string& cluster_id)> mapped_clusters =
      [](const std::string&) { return std::vector<std::string>(); };
  /// Asks the orchestrator, within seconds.
  std::function<task<Attachment>(std::string volume_id)> attachment = no_attachment;
  /// Turns the orchestrator's path into the form that mountinfo has: without "//" and the like, and with the links that
  /// lead to kubelet's folder resolved.
  std::function<std::string(std::string path)> real_path = host::plain_path;
};

struct Config {
  Policy policy;
  std::string boot_id;
  std::uint64_t dead_conn_timeout_s = 86400;
  std::chrono::seconds step_limit{60};         ///< one step against the cluster or the kernel
  std::chrono::seconds long_step_limit{1800};  ///< one mkfs, fsck or proof of emptiness
};

/// Control thread only.
class Shell final : public Volumes {
 public:
  Shell(executor control, Clock& clock, Ports ports, Config config);
  ~Shell() override;

  /// Reads the records. Call it once, before anything else.
  task<result<>> start();
  task<result<>> want(std::string volume_id, Wish wish, Until until) override;
  task<result<host::Usage>> usage(std::string volume_id, std::string path, Until until) override;
  std::vector<Status> status() const override;
  std::optional<Status> status(const std::string& volume_id) const override;
  std::vector<Unclaimed> unclaimed() const override;
  std::vector<Unclaimed> left_to_kernel() const override;
  /// The last changes of the volume's health, oldest first.
  std::vector<Change> timeline(const std::string& volume_id) const;
  /// Called when a volume may need healing: its device lost its server, its client was cut off, or its image's size
  /// changed. Set it before start().
  void on_trouble(std::function<void(std::string volume_id, std::string why)> trouble);
  /// Called at every change of a volume's health. Set it before start().
  void on_change(std::function<void(const Change&)> change);
  /// While the agent is drained, a volume without a record is not staged (unavailable). kubelet asks again, and other
  /// nodes are free to take the volume.
  void drain(bool on);
  bool draining() const;
  /// Leaves: refuses new wishes and further steps, answers what was read from every link, all at once, and then waits
  /// for the steps under way. Locks stay held, because they are the next start's proof of ownership.
  task<> stop(Until until);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::volume
