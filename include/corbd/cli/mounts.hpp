// `corbd mount`, `corbd unmount`, `corbd expand` and `corbd mounts`: volumes of a host without an orchestrator.
#pragma once

#include <string>
#include <vector>

namespace corbd::cli {

struct Mounts {
  enum class What { none, mount, unmount, expand, list };
  What what = What::none;

  /// The volume and where to mount it. A file of mounts.d has the same, one mount each.
  struct Wish {
    std::string image;  ///< POOL/IMAGE, IMAGE in the pool rbd, or the ID of a volume that a provisioner made
    std::string dir;
    std::string cluster;  ///< clusterID; empty: the fsid of `conf`
    std::string conf = "/etc/ceph/ceph.conf", user = "admin";
    std::string keyring;  ///< empty: Ceph's own places
    std::string fstype;   ///< empty: the plugin's default
    std::string options;  ///< of the mount, comma separated
    std::string kms;      ///< of an encrypted volume; empty: not encrypted
    std::string passphrase_file;
    std::vector<std::string> attributes;  ///< "name=value"; they override what follows from the others
    bool read_only = false, block = false;
  };
  Wish wish;
  bool all = false;         ///< every claim; to mount, every file of mounts_dir, too
  bool write_unit = false;  ///< print a unit, and mount nothing
  bool wait = false;        ///< for a plugin that does not answer yet
  std::string endpoint = "unix:///run/corbd/csi.sock", runtime_dir = "/run/corbd";
  std::string root = "/var/lib/corbd/mounts";  ///< claims and staging paths
  std::string mounts_dir = "/etc/corbd/mounts.d";
  std::string output = "text";             ///< or "json"
  int parallel = 4;                        ///< of all, at the same time
  int timeout_s = 0;                       ///< 0: see limit_of
  std::string program = "/proc/self/exe";  ///< whose subcommand helper looks at mounts
};

/// Seconds: 80 for an unmount of all, less than systemd gives a unit to stop; otherwise 300.
int limit_of(const Mounts& ask);

/// Progress and problems go to stderr, answers to stdout. Exit code: 0 done, 1 failed, 3 no plugin answers.
int call_mounts(const Mounts& ask);

}  // namespace corbd::cli
