// Inputs of the doctor's judgements, and the functions that gather and judge them.
#pragma once

#include <array>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/cephcsi/key.hpp"
#include "corbd/cephcsi/mounters.hpp"
#include "corbd/core/result.hpp"
#include "corbd/device/device.hpp"
#include "corbd/doctor/doctor.hpp"
#include "corbd/doctor/finding.hpp"
#include "corbd/doctor/readings.hpp"
#include "corbd/host/kernel_needs.hpp"
#include "corbd/host/tools.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/kube/rights.hpp"
#include "corbd/rbd/config_json.hpp"
#include "corbd/v1/admin.pb.h"

namespace corbd::doctor {

/// A monitor as config.json names it, with the addresses to try.
struct Endpoint {
  std::string host, port;
  bool operator==(const Endpoint&) const = default;
};
struct Monitor {
  std::string cluster_id, text;
  bool answers = false;  ///< one of its ports took a TCP connection
};

/// A configured nbd device.
struct NbdDevice {
  std::uint32_t index = 0;
  std::string backend;        ///< its identifier, a volume ID; empty: it has none
  bool maker_lives = false;   ///< the process that connected it lives; means nothing once another one serves it
  std::uint32_t waiting = 0;  ///< requests
  bool read_only = false;     ///< the kernel refuses writes
  std::vector<std::string> volume_groups = {};  ///< groups of the host's LVM that are active on it
};

/// The words of lvm.conf on the devices of volumes.
struct LvmView {
  std::vector<std::string> scanned;  ///< kinds of devices that the host's LVM looks into: "nbd", "rbd"
  std::string by;                    ///< decides: "global_filter", "filter", "the devices file"; empty: nothing
};

/// A program that the agent's helpers start.
struct ToolSeen {
  std::string name, package;
  bool there = false;
};

/// A filesystem of a volume that is staged here.
struct FilesystemSeen {
  std::string volume;    ///< its ID
  std::string device;    ///< "/dev/nbd0", "/dev/mapper/..."
  bool mounted = false;  ///< mounted, so this kernel knows all of its features
  result<host::KernelNeeds> needs;
};

/// Filesystem that mkfs makes here.
struct NewFilesystem {
  std::string fstype;
  std::string options;  ///< the agent's; empty: corbd's defaults
  result<host::KernelNeeds> needs;
};

using cephcsi::KeyType;
struct KeySeen {
  std::string of;  ///< the volume's ID; for a keyring the folder of the mount, or the file, with the user
  KeyType type = KeyType::unknown;
  bool by_kernel = false;  ///< the kernel's client serves the volume
  enum class From {
    volume,  ///< a staged volume
    mount,   ///< a keyring that a file of mounts.d names
    keyring  ///< a keyring that no file of mounts.d names
  } from = From::volume;
};

/// The keyrings of a host without an orchestrator.
struct Keyrings {
  std::vector<KeySeen> keys;
  std::vector<std::string> wrong;  ///< reasons why files of `mounts_dir` cannot be mounted
};
/// Choice of a volume's client, as far as the volume's attributes do not decide.
struct Choosing {
  cephcsi::Mounter unnamed = cephcsi::Mounter::nbd;  ///< for volumes whose attributes name none
  cephcsi::MounterRules rules = {};                  ///< override the attributes
};

/// All inputs. An absent value could not be read.
struct Inputs : Readings {
  std::optional<std::string> nbds_max;
  std::optional<std::uint64_t> capabilities;  ///< effective capabilities, one bit each
  std::string pid_namespace;                  ///< "pid:[4026531836]"
  std::string first_process;                  ///< name of pid 1 as we see it
  std::optional<bool> host_network;
  /// Folders of kubelet, and whether mounts below them reach the host (host::propagates).
  std::vector<std::pair<std::string, std::optional<bool>>> propagation;
  result<> runtime_dir, state_dir_writable, admin, csi;
  std::vector<Monitor> monitors;
  std::vector<NbdDevice> devices;
  std::vector<std::uint32_t> read_only_numbers;  ///< free nbd numbers that are read-only
  std::vector<std::uint32_t> zeroing_numbers;    ///< nbd numbers, in use or free, that take WRITE_ZEROES
  bool no_rbd_nbd = false;                       ///< the agent runs with --no-rbd-nbd
  std::vector<std::string> rbd_nbd;              ///< signs of rbd-nbd: "process 4711 is rbd-nbd"
  std::optional<LvmView> lvm;                    ///< absent: no lvm.conf
  std::vector<ToolSeen> tools;
  std::vector<FilesystemSeen> filesystems;  ///< none if no agent answers
  std::vector<NewFilesystem> new_filesystems;
  std::optional<std::string> wrong_mkfs_options;  ///< why the agent's mkfs options cannot be read
  Module dm_crypt = Module::absent;
  std::vector<kms::Complaint> kms;  ///< problems of the KMS config
  result<> system_bus;
  result<std::vector<kube::Allowed>> api_rights = std::vector<kube::Allowed>();
  v1::Program own;                              ///< this program
  std::optional<v1::GetStatusResponse> status;  ///< the agent's; absent: it did not answer
  std::string ceph_release;                     ///< version of librados: "16.2.15"; empty: unknown
  std::string ceph_libraries;                   ///< rbd::library_versions()
  std::string split_reads;                      ///< osd_min_split_replica_read_size in ceph.conf; empty: not set
  std::vector<KeySeen> keys;                    ///< keys of volumes here, and in keyrings
  std::vector<std::string> wrong_mounts;        ///< reasons why files of mounts.d cannot be mounted
  std::optional<bool> dumps_core;               ///< whether the state directory's agent may dump core; absent: no agent
};

// --- pure

/// A version in numbers: {6, 1, 0} for "6.1.0-13-amd64"; zeroes for anything that is no number.
using Version = std::array<unsigned, 3>;
Version version_of(std::string_view release);
/// Reads /proc/<pid>/limits; absent if it has no such line.
std::optional<bool> dumps_core(std::string_view limits);
/// Parses "HOST", "HOST:PORT", "[IPV6]:PORT", "v2:HOST:PORT/0" or "[v2:...,v1:...]". Without a port, both of Ceph's
/// ports are returned.
std::vector<Endpoint> endpoints_of(std::string_view monitor);
/// Judges by the texts of lvm.conf, with lvmlocal.conf behind it, and of the devices file, if there is one
/// (lvm.conf(5), lvmdevices(8)).
LvmView view_of_lvm(std::string_view lvm_conf, const std::optional<std::string>& devices_file);
/// Returns "a, b, c".
std::string listed(const std::vector<std::string>& all, const char* between = ", ");
std::vector<Finding> judge(const Inputs& inputs);
/// Parts of judge().
void judge_node(const Inputs& inputs, std::vector<Finding>& into);
void judge_filesystems(const Inputs& inputs, std::vector<Finding>& into);
void judge_ceph(const Inputs& inputs, std::vector<Finding>& into);
/// Needs an lvm.conf.
Finding judge_lvm(const Inputs& inputs);
Finding judge_combinations(const Inputs& inputs);
Finding judge_rbd_nbd(const Inputs& inputs);
Finding judge_versions(const Inputs& inputs);
/// Returns why the agent cannot hand over to `next`, in the words of its own refusal (src/handover/messages.hpp).
/// Empty: it can.
std::string cannot_follow(const v1::Program& serving, const v1::Program& next);
/// Replaces strings below a name that sounds like a secret, and anything that looks like a Ceph key, by "<redacted>".
boost::json::value redacted_json(boost::json::value value);
/// Does the same in other text: replaces the VALUE in NAME=VALUE of such names, and Ceph keys.
std::string redacted_text(std::string_view text);

/// Returns the value of "--NAME=VALUE" or "--NAME VALUE" in the text of /proc/<pid>/cmdline; empty: it is not there.
std::string flag_of(std::string_view command_line, std::string_view name);
/// Whether a boolean flag is on in such a text, by Go's grammar: "--NAME", "--NAME=true".
bool is_on(std::string_view command_line, std::string_view name);
/// Finds the volumes with integrityMode. A record does not say it, but the mappings above the volume's device do.
void find_integrity(Records& records, const std::vector<device::Seen>& devices);
/// Filesystems of volumes that have a record. `mounted`: the kernel's names of the mounted devices.
std::vector<FilesystemSeen> find_filesystems(const Records& records, const std::vector<device::Seen>& devices,
                                             const std::vector<std::string>& mounted);

// --- thin

Inputs gather(const Options& options, const v1::Program& own);
/// The volumes that have a record in that folder, and what their records say.
Records read_records(const std::string& state_dir);
/// Fills in `needs` of the volumes that the agent serves: `each` for one, 10 s for all.
void read_filesystems(std::vector<FilesystemSeen>& all, const std::map<std::string, AgentVolume>& volumes,
                      const HelperProgram& helper = {},
                      std::chrono::milliseconds each = std::chrono::milliseconds(3000));
/// Tries each mkfs that is installed, on a file in memory, with the options of its type; 10 s for all.
std::vector<NewFilesystem> try_mkfs(const std::map<std::string, std::string>& options,
                                    const HelperProgram& helper = {});
Keyrings read_keyrings(const std::string& mounts_dir, const std::string& ceph_dir, const Choosing& choosing = {});
/// Looks for rbd-nbd below the host's `root` and in `proc`. `agent`: the agent's command line, which is no sign.
std::vector<std::string> signs_of_rbd_nbd(const std::string& root, const std::string& proc, const std::string& agent);
/// Tries a TCP connection to each, 2 s each, all at once, 10 s together; fills in `answers`.
void ask_monitors(std::vector<Monitor>& monitors);
/// Returns the rights that the API server grants to this pod; failed_precondition: there is no API server.
result<std::vector<kube::Allowed>> api_rights(const std::string& driver);
/// Nothing: no agent answers.
std::optional<v1::GetStatusResponse> ask_status(const std::string& endpoint);
/// Packs the report, and files that help a remote person, into a .tar.gz. Never reads keys.
result<> write_bundle(const Options& options, const std::string& version, const std::vector<Finding>& findings);
}  // namespace corbd::doctor
