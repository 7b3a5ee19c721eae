// One volume of a node as the planner sees it, for the tests of its parts.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "corbd/plan/planner.hpp"
#include "support/catch.hpp"

namespace corbd::test {

using namespace corbd::plan;
using Lock = image::Ownership::Lock;

inline const std::string kId = "image-1";
inline const std::string kPath = "/staging";
inline const std::string kTarget = kPath + "/" + kId;  ///< the mount of the staging path
inline constexpr std::uint64_t kTwo = 2ull << 30;      ///< bytes
inline const Policy kPolicy{.driver = "rbd.csi.ceph.com", .node = "node-1"};

/// A node with one volume, on which steps have the effect that the ports promise.
struct Model {
  std::optional<Record> record;
  Observation seen;
  bool image_has_filesystem = false;
  bool image_has_data = false;
  std::string marker;  ///< of a format that was begun
  std::uint64_t filesystem_bytes = 0, cluster_bytes = 0;
  bool exclusive_lock = true;  ///< the image has the feature
  bool late_lock = false;      ///< the first lock comes long after what proved the image ours
  image::Features features;
  image::Ownership ownership;
  Attachment attachment;
  std::vector<Holder> holders;  ///< the foreign watchers of `ownership`
  cephcsi::IoLimits io_limits;  ///< in the image's metadata
  bool takes_limits = true;     ///< the pod's cgroup does
  bool other_serves = false;
  bool cut = false;                     ///< its device no longer accepts a link
  bool open = false;                    ///< a program has its device open, but not mounted
  std::string damage;                   ///< of its filesystem, which a check finds
  std::string kms_id, encryption_type;  ///< as its journal says
  std::string encryption;               ///< the image's metadata
  bool luks = false;                    ///< it has a header; what is on the image is then below that
  std::vector<int> slots;
  host::EncryptedFolder folder = host::EncryptedFolder::none;  ///< of the mounted filesystem
  bool user_refused = false;                                   ///< the cluster refuses the user of its image's client
  bool secret_differs = false;  ///< its Secret has another user and key, and the cluster takes them
  FirstKey first_key;
  Keys keys;
  enum class Freezes { nobody, agent, somebody_else } freezes = Freezes::nobody;  ///< its filesystem
  bool confirmed = false;  ///< the KMS stored a key in this operation
  std::optional<Stash> stash;
  std::optional<Note> metadata;
  Policy policy = kPolicy;

  Decision decide(const Wish& wish) const { return plan::decide(kId, record, wish, seen, policy); }
  void apply(const Step& step, const Wish& wish);
  void look(Fact fact);
  /// I1: a step that uses a device needs a live link, or the kernel's client.
  bool answers() const {
    const bool by_kernel = seen.device() != nullptr && seen.device()->kind == device::Kind::krbd;
    return other_serves || by_kernel || (seen.link == Observation::Link::serving && seen.connected);
  }
};

device::Seen device_seen(std::uint32_t index, device::Kind kind = device::Kind::nbd);
/// The mapping above the device of an encrypted volume.
device::UpperDevice mapping();
/// What integrity has between the two.
device::UpperDevice inner_mapping();
host::Mount mount_of(const device::Seen& device, const std::string& target);
Staged staged_wish();

enum class Phase { staging, staged, unstaging };
Record some_record(Phase phase);
/// Nothing of the volume is on the node.
Model fresh();
/// The volume is staged and served.
Model staged_model();

/// How the first stage of a volume begins: until the image is open and its owner is known.
inline std::vector<Step> opened() {
  return {step::Look{Fact::resolved}, step::WriteRecord{}, step::Fence{}, step::OpenImage{},
          step::Look{Fact::ownership}};
}
/// As opened(), and until it is known that this node may write the image.
inline std::vector<Step> permitted() {
  auto steps = opened();
  steps.push_back(step::Look{Fact::attachment});
  return steps;
}
/// From there until this agent serves a device.
inline std::vector<Step> connected() {
  return {step::Lock{},          step::Look{Fact::stash},     step::WriteStash{kPath, {}}, step::StartSession{},
          step::KernelConnect{}, step::WriteStash{kPath, {}}, step::WriteRecord{},         step::Tune{}};
}
/// From an image that nothing proves to be empty yet to one that may be formatted.
inline std::vector<Step> proven_empty() {
  return {step::Look{Fact::format_marker}, step::Look{Fact::has_data}, step::WriteRecord{}, step::SetFormatMarker{}};
}
/// The same of an encrypted volume, whose key is asked for before anything is written.
inline std::vector<Step> proven_empty_with_key() {
  return {step::Look{Fact::format_marker}, step::Look{Fact::has_data}, step::Look{Fact::first_key}, step::WriteRecord{},
          step::SetFormatMarker{}};
}
/// From a new filesystem to the end of the stage.
inline std::vector<Step> mounted() {
  return {step::Look{Fact::probe}, step::Mount{kTarget}, step::Look{Fact::filesystem, kTarget},
          step::RemoveFormatMarker{}, step::WriteRecord{}};
}
/// The parts, one after another.
std::vector<Step> sequence(std::initializer_list<std::vector<Step>> parts);

/// A step as the tests compare it: without the record, the stash and the note that it writes, and whom it evicts.
Step outline(Step step);
/// The outlines of the steps until the planner asks for no more; nothing if 40 steps do not get there.
std::optional<std::vector<Step>> run(Model& model, const Wish& wish, Decision* last = nullptr);
/// The error that the planner failed with; ok: it did not fail.
errc failure(const Decision& decision);

/// A row of a table: a volume in some state, what is wanted of it, the steps to there, and how they end.
struct Row {
  std::string name;
  Model model;
  Wish wish;
  std::vector<Step> steps;
  errc ends = errc::ok;
  bool waits = false;
};
void check(const std::vector<Row>& rows);
/// The model with something else in it.
template <class Change>
Model but(Model model, Change change) {
  change(model);
  return model;
}

}  // namespace corbd::test
