// The operations of a helper for the ports of this room.
#pragma once

#include "corbd/core/helper_operation.hpp"
#include "corbd/host/daemons.hpp"
#include "corbd/host/fscrypt.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/kernel_needs.hpp"
#include "corbd/host/luks.hpp"

namespace corbd::fields {

template <>
struct Written<host::Probe::Kind> : helper::AsNumber<host::Probe::Kind> {};
template <>
struct Written<host::EncryptedFolder> : helper::AsNumber<host::EncryptedFolder> {};

}  // namespace corbd::fields

namespace corbd::host::operation {

using fields::required;
using std::chrono::seconds;

// After this an operation is reported stuck. A mkfs or fsck of a large image on a slow cluster is work, not a hang.
constexpr seconds kQuick{30}, kMounting{60}, kTool{600};
/// argon2 beside others on a slow machine, over a slow cluster.
constexpr seconds kHashing{120};

struct ProbeDevice {
  using Reply = Probe;
  static constexpr std::string_view name = "probe";
  static constexpr seconds patience = kQuick;
  std::string device;
  static constexpr std::tuple fields{required("device", &ProbeDevice::device)};
  std::string what() const { return "probe " + device; }
};
struct MakeFilesystem {
  using Reply = std::string;
  static constexpr std::string_view name = "mkfs";
  static constexpr seconds patience = kTool;
  std::string device, fstype, options;
  MkfsFor made_for;
  static constexpr std::tuple fields{
      required("device", &MakeFilesystem::device), required("fstype", &MakeFilesystem::fstype),
      required("options", &MakeFilesystem::options), required("made_for", &MakeFilesystem::made_for)};
  std::string what() const { return "mkfs." + fstype + " " + device; }
};
struct RepairFilesystem {
  using Reply = void;
  static constexpr std::string_view name = "fsck";
  static constexpr seconds patience = kTool;
  std::string device, fstype, options;
  static constexpr std::tuple fields{required("device", &RepairFilesystem::device),
                                     required("fstype", &RepairFilesystem::fstype),
                                     required("options", &RepairFilesystem::options)};
  std::string what() const { return "fsck " + device; }
};
struct CheckFilesystem {
  using Reply = std::string;
  static constexpr std::string_view name = "check";
  static constexpr seconds patience = kTool;
  std::string device, fstype;
  static constexpr std::tuple fields{required("device", &CheckFilesystem::device),
                                     required("fstype", &CheckFilesystem::fstype)};
  std::string what() const { return "check " + device; }
};
struct InspectFilesystem {
  using Reply = Inspection;
  static constexpr std::string_view name = "inspect";
  static constexpr seconds patience = kTool;
  std::string device, fstype;
  bool repair = false;
  static constexpr std::tuple fields{required("device", &InspectFilesystem::device),
                                     required("fstype", &InspectFilesystem::fstype),
                                     required("repair", &InspectFilesystem::repair)};
  std::string what() const { return (repair ? "repair " : "inspect ") + device; }
};
struct ReadKernelNeeds {
  using Reply = KernelNeeds;
  static constexpr std::string_view name = "kernel_needs";
  static constexpr seconds patience = kQuick;
  std::string device;
  static constexpr std::tuple fields{required("device", &ReadKernelNeeds::device)};
  std::string what() const { return "reading the superblock of " + device; }
};
struct TryKernelNeeds {
  using Reply = KernelNeeds;
  static constexpr std::string_view name = "kernel_needs_of_new";
  static constexpr seconds patience = kQuick;
  std::string fstype, options;
  static constexpr std::tuple fields{required("fstype", &TryKernelNeeds::fstype),
                                     required("options", &TryKernelNeeds::options)};
  std::string what() const { return "trying mkfs." + fstype; }
};
struct MountDevice {
  using Reply = void;
  static constexpr std::string_view name = "mount";
  static constexpr seconds patience = kMounting;
  std::string device, fstype, target, flags;
  static constexpr std::tuple fields{required("device", &MountDevice::device), required("fstype", &MountDevice::fstype),
                                     required("target", &MountDevice::target), required("flags", &MountDevice::flags)};
  std::string what() const { return "mount " + device + " on " + target; }
};
struct Bind {
  using Reply = void;
  static constexpr std::string_view name = "bind";
  static constexpr seconds patience = kQuick;
  std::string source, target;
  bool device_node = false;
  std::string flags;
  static constexpr std::tuple fields{required("source", &Bind::source), required("target", &Bind::target),
                                     required("device_node", &Bind::device_node), required("flags", &Bind::flags)};
  std::string what() const { return "bind " + source + " on " + target; }
};
struct Unmount {
  using Reply = void;
  static constexpr std::string_view name = "unmount";
  static constexpr seconds patience = kMounting;
  std::string target;
  bool sync = false;
  static constexpr std::tuple fields{required("target", &Unmount::target), required("sync", &Unmount::sync)};
  std::string what() const { return "unmount " + target; }
};
struct LimitIo {
  using Reply = void;
  static constexpr std::string_view name = "limit_io";
  static constexpr seconds patience = kQuick;
  std::string pod_uid, line;
  static constexpr std::tuple fields{required("pod_uid", &LimitIo::pod_uid), required("line", &LimitIo::line)};
  std::string what() const { return "limit the I/O of pod " + pod_uid; }
};
struct Trim {
  using Reply = std::uint64_t;
  static constexpr std::string_view name = "trim";
  static constexpr seconds patience = kTool;
  std::string target;
  static constexpr std::tuple fields{required("target", &Trim::target)};
  std::string what() const { return "trim " + target; }
};
struct Freeze {
  using Reply = std::string;
  static constexpr std::string_view name = "freeze";
  static constexpr seconds patience = kMounting;
  std::string target;
  std::uint64_t last_ns = 0;  ///< nothing is frozen later, by the monotonic clock that agent and helper share
  static constexpr std::tuple fields{required("target", &Freeze::target), required("last_ns", &Freeze::last_ns)};
  std::string what() const { return "freeze the filesystem at " + target; }
};
struct Thaw {
  using Reply = bool;
  static constexpr std::string_view name = "thaw";
  static constexpr seconds patience = kMounting;
  std::string target;
  static constexpr std::tuple fields{required("target", &Thaw::target)};
  std::string what() const { return "thaw the filesystem at " + target; }
};
struct TrimFrom {
  using Reply = TrimPiece;
  static constexpr std::string_view name = "trim_from";
  static constexpr seconds patience = kQuick;
  std::string target;
  std::uint64_t from = 0;
  static constexpr std::tuple fields{required("target", &TrimFrom::target), required("from", &TrimFrom::from)};
  std::string what() const { return "trim " + target + " from byte " + std::to_string(from); }
};
struct MeasureUsage {
  using Reply = Usage;
  static constexpr std::string_view name = "usage";
  std::string target;
  static constexpr std::tuple fields{required("target", &MeasureUsage::target)};
  std::string what() const { return "look how full " + target + " is"; }
  static constexpr seconds patience{5};
};
struct MeasureExtent {
  using Reply = Extent;
  static constexpr std::string_view name = "extent";
  static constexpr seconds patience = kQuick;
  std::string device, fstype, target;
  static constexpr std::tuple fields{required("device", &MeasureExtent::device),
                                     required("fstype", &MeasureExtent::fstype),
                                     required("target", &MeasureExtent::target)};
  std::string what() const { return "look how large " + target + " is"; }
};
struct Grow {
  using Reply = void;
  static constexpr std::string_view name = "grow";
  static constexpr seconds patience = kTool;
  std::string device, fstype, target;
  static constexpr std::tuple fields{required("device", &Grow::device), required("fstype", &Grow::fstype),
                                     required("target", &Grow::target)};
  std::string what() const { return "grow " + fstype + " of " + device; }
};
struct CheckUnused {
  using Reply = void;
  static constexpr std::string_view name = "check_unused";
  static constexpr seconds patience = kQuick;
  std::string device;
  static constexpr std::tuple fields{required("device", &CheckUnused::device)};
  std::string what() const { return "check that nobody uses " + device; }
};
struct Tune {
  using Reply = void;
  static constexpr std::string_view name = "tune";
  std::string kernel_name;
  NumberUse use;
  static constexpr std::tuple fields{required("kernel_name", &Tune::kernel_name), required("use", &Tune::use)};
  std::string what() const { return "tune the queue of " + kernel_name; }
  /// Newer kernels wait for every request in flight. One of another program's dead link ends by its timer, after 30 s.
  static constexpr seconds patience{75};
};
struct FindDaemons {
  using Reply = OtherServer;
  static constexpr std::string_view name = "daemons";
  static constexpr seconds patience = kQuick;
  std::uint32_t index = 0;
  std::string backend;
  static constexpr std::tuple fields{required("index", &FindDaemons::index),
                                     required("backend", &FindDaemons::backend)};
  std::string what() const { return "look for rbd-nbd"; }
};
struct DismissDaemons {
  using Reply = void;
  static constexpr std::string_view name = "dismiss";
  static constexpr seconds patience = kMounting;
  std::uint32_t index = 0;
  std::string backend;
  static constexpr std::tuple fields{required("index", &DismissDaemons::index),
                                     required("backend", &DismissDaemons::backend)};
  std::string what() const { return "end rbd-nbd of " + backend; }
};
struct LookForLuks {
  using Reply = LuksHeader;
  static constexpr std::string_view name = "luks_look";
  static constexpr seconds patience = kHashing;
  std::string device;
  static constexpr std::tuple fields{required("device", &LookForLuks::device)};
  std::string what() const { return "look for LUKS on " + device; }
};
struct FormatLuks {
  using Reply = void;
  static constexpr std::string_view name = "luks_format";
  std::string device;
  LuksFormat how;
  Secret passphrase;
  static constexpr std::tuple fields{required("device", &FormatLuks::device), required("how", &FormatLuks::how),
                                     required("passphrase", &FormatLuks::passphrase)};
  std::string what() const { return "luksFormat " + device; }
  /// Integrity writes the whole device: 8 TiB at 100 MB/s.
  seconds patience() const { return how.integrity.empty() ? kHashing : std::chrono::hours(24); }
};
struct OpenLuks {
  using Reply = void;
  static constexpr std::string_view name = "luks_open";
  static constexpr seconds patience = kHashing;
  std::string device, mapping;
  Secret passphrase;
  LuksOpening how;
  static constexpr std::tuple fields{required("device", &OpenLuks::device), required("mapping", &OpenLuks::mapping),
                                     required("passphrase", &OpenLuks::passphrase), required("how", &OpenLuks::how)};
  std::string what() const { return "luksOpen " + device; }
};
struct ResizeLuks {
  using Reply = void;
  static constexpr std::string_view name = "luks_resize";
  static constexpr seconds patience = kHashing;
  std::string mapping;
  static constexpr std::tuple fields{required("mapping", &ResizeLuks::mapping)};
  std::string what() const { return "resize " + mapping; }
};
struct CloseLuks {
  using Reply = void;
  static constexpr std::string_view name = "luks_close";
  static constexpr seconds patience = kHashing;
  std::string mapping;
  static constexpr std::tuple fields{required("mapping", &CloseLuks::mapping)};
  std::string what() const { return "luksClose " + mapping; }
};
struct TryLuksKey {
  using Reply = bool;
  static constexpr std::string_view name = "luks_opens";
  static constexpr seconds patience = kHashing;
  std::string device;
  int slot = 0;
  Secret passphrase;
  static constexpr std::tuple fields{required("device", &TryLuksKey::device), required("slot", &TryLuksKey::slot),
                                     required("passphrase", &TryLuksKey::passphrase)};
  std::string what() const { return "try a LUKS key of " + device; }
};
struct AddLuksKey {
  using Reply = void;
  static constexpr std::string_view name = "luks_add_key";
  static constexpr seconds patience = kHashing;
  std::string device;
  int slot = 0;
  Secret known, added;
  static constexpr std::tuple fields{required("device", &AddLuksKey::device), required("slot", &AddLuksKey::slot),
                                     required("known", &AddLuksKey::known), required("added", &AddLuksKey::added)};
  std::string what() const { return "luksAddKey " + device; }
};
struct RemoveLuksKey {
  using Reply = void;
  static constexpr std::string_view name = "luks_remove_key";
  static constexpr seconds patience = kHashing;
  std::string device;
  int slot = 0;
  static constexpr std::tuple fields{required("device", &RemoveLuksKey::device),
                                     required("slot", &RemoveLuksKey::slot)};
  std::string what() const { return "luksKillSlot " + device; }
};
struct LookForFolder {
  using Reply = EncryptedFolder;
  static constexpr std::string_view name = "fscrypt_look";
  static constexpr seconds patience = kHashing;
  std::string target;
  static constexpr std::tuple fields{required("target", &LookForFolder::target)};
  std::string what() const { return "look for an encrypted folder at " + target; }
};
struct MakeFolder {
  using Reply = void;
  static constexpr std::string_view name = "fscrypt_make";
  static constexpr seconds patience = kHashing;
  std::string target;
  FscryptSecret secret;
  static constexpr std::tuple fields{required("target", &MakeFolder::target), required("secret", &MakeFolder::secret)};
  std::string what() const { return "make an encrypted folder at " + target; }
};
struct UnlockFolder {
  using Reply = void;
  static constexpr std::string_view name = "fscrypt_unlock";
  static constexpr seconds patience = kHashing;
  std::string target;
  FscryptSecret secret;
  static constexpr std::tuple fields{required("target", &UnlockFolder::target),
                                     required("secret", &UnlockFolder::secret)};
  std::string what() const { return "unlock the folder at " + target; }
};
struct LockFolder {
  using Reply = void;
  static constexpr std::string_view name = "fscrypt_lock";
  static constexpr seconds patience = kHashing;
  std::string target;
  static constexpr std::tuple fields{required("target", &LockFolder::target)};
  std::string what() const { return "lock the folder at " + target; }
};

}  // namespace corbd::host::operation
