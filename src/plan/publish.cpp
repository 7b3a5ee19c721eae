#include "publish.hpp"

#include <algorithm>

#include "bring_up.hpp"
#include "corbd/plan/combination.hpp"
#include "corbd/plan/outcome.hpp"
#include "fscrypt.hpp"
#include "krbd.hpp"
#include "paths.hpp"
#include "stage.hpp"

namespace corbd::plan {
namespace {

/// Finds the limits. Only an image that this agent serves is open. The limits of the kernel client's volumes are known
/// since their stage, so that their publish needs no cluster.
std::optional<Decision> find_limits(const Situation& view, const Published& wish) {
  if (wish.pod_uid.empty() || by_kernel(view) || view.seen.facts.io_limits) return std::nullopt;
  if (!view.seen.image_open || view.seen.tombstone) return std::nullopt;
  return look(Fact::io_limits);
}

/// Drops the limits that the pod's cgroup refused.
Decision note_refusal(const Situation& view, const std::string& target) {
  Record record = *view.record;
  for (auto& publish : record.publishes)
    if (publish.target == target) publish.limits = {};
  return write(std::move(record));
}

/// The pod's name is for people only: an older agent did not record it.
bool same_publish(const Publish& one, const Publish& other) {
  return one.target == other.target && one.staging == other.staging && one.read_only == other.read_only;
}

std::string how_published(const Publish& known, const Publish& wanted) {
  const auto text = [](const Publish& publish) {
    return std::string(publish.read_only ? "read-only" : "writable") + " from " + publish.staging;
  };
  return "it is " + text(known) + " there, and wanted " + text(wanted);
}

/// Refuses a mount that an error turned read-only: a pod that wants to write would start only to fail.
std::optional<Decision> refuse_turned_read_only(const Situation& view, const Staging& staging, const Published& wish) {
  if (staging.capability.block || wish.read_only || wants_read_only(staging.capability)) return std::nullopt;
  if (!our_mount_at(view, staging_target(view.id, staging.path))->filesystem_read_only) return std::nullopt;
  if (view.record->damaged)
    return refuse(errc::failed_precondition,
                  "the filesystem of volume " + view.id +
                      " was damaged when it was staged, and is mounted read-only: a pod that mounts its claim with "
                      "readOnly can have it. To write it again, " +
                      way_out_of_damage(*view.record));
  return refuse(errc::failed_precondition,
                "the filesystem of volume " + view.id +
                    " turned read-only after an error: end all that uses it on this node, so that it is unstaged; its "
                    "next stage runs fsck");
}

/// A publish that an agent began and did not end is not mounted yet, so both ends of a publish ask.
std::optional<Decision> refuse_second_pod(const Situation& view, const Published& wish) {
  if (!wish.capability.single_writer) return std::nullopt;
  for (const auto& publish : view.record->publishes)
    if (publish.target != wish.target && is_there(view, publish))
      return refuse(error_of(not_served::kSecondPod, "volume " + view.id,
                             " and published at " + publish.target + ": unpublish it there first"));
  return std::nullopt;
}

/// Writes the publish into the record before the bind mount.
Decision begin_publish(const Situation& view, const Published& wish, const Staging& staging, Publish wanted) {
  if (auto refused = refuse_second_pod(view, wish)) return *refused;
  if (mounted_at(view, wish.target))
    return refuse(errc::failed_precondition, "something else is mounted at " + wish.target + ": unmount it");
  if (auto refused = refuse_turned_read_only(view, staging, wish)) return *refused;
  if (auto step = find_limits(view, wish)) return *step;
  if (!wish.pod_uid.empty())
    wanted.limits = view.seen.facts.io_limits.value_or(by_kernel(view) ? view.record->device.io_limits : IoLimits());
  Record record = *view.record;
  record.publishes.push_back(std::move(wanted));
  return write(std::move(record));
}

Decision finish_publish(const Situation& view, const Published& wish, const Staging& staging, const Publish& known) {
  if (ours_at(view, wish.target)) return Done{};
  if (mounted_at(view, wish.target))
    return refuse(errc::failed_precondition, "something else is mounted at " + wish.target + ": unmount it");
  if (auto refused = refuse_second_pod(view, wish)) return *refused;
  if (auto refused = refuse_turned_read_only(view, staging, wish)) return *refused;
  if (!known.limits.empty() && !wish.pod_uid.empty()) {
    const auto& limited = view.seen.facts.io_limited;
    if (!limited) return Step(step::LimitIo{wish.pod_uid, known.limits});
    if (!*limited) return note_refusal(view, wish.target);
  }
  if (auto step = refuse_locked(view, staging_target(view.id, staging.path))) return *step;
  return step::Bind{wish.target};
}

}  // namespace

Decision publish(const Situation& view, const Published& wish) {
  const std::string source = staging_target(view.id, wish.path);
  const Staging* staging = view.record ? staging_at(*view.record, wish.path) : nullptr;
  if (!view.record && mounted_at(view, source)) return without_record(view, source);
  if (staging == nullptr || !staging->complete || !ours_at(view, source))
    return refuse(errc::failed_precondition,
                  "volume " + view.id + " is not staged by this agent at " + wish.path + ": " + kStageAgain);
  if (view.record->failed) return given_up(view);
  if (auto step = bring_up(view)) return *step;
  const Publish wanted{wish.target, wish.path, wish.read_only, wish.pod};
  const auto& publishes = view.record->publishes;
  const auto known =
      std::find_if(publishes.begin(), publishes.end(), [&](const auto& entry) { return entry.target == wish.target; });
  // Mount flags may differ: a bind has its own, and those of the target stay until its next publish.
  const std::string other = conflict(staging->capability, as_served(*view.record, wish));
  if (known != publishes.end() && (!same_publish(*known, wanted) || !other.empty()))
    return refuse(errc::already_exists,
                  "volume " + view.id + " is published at " + wish.target + ", and this request differs: " +
                      (other.empty() ? how_published(*known, wanted) : other) + ": unpublish it there first");
  if (!other.empty())
    return refuse(errc::failed_precondition, "volume " + view.id + " is staged at " + wish.path +
                                                 ", and this request differs: " + other +
                                                 ": publish it as it is staged");
  if (auto step = note_claim(view, wish.claim)) return *step;
  return known == publishes.end() ? begin_publish(view, wish, *staging, wanted)
                                  : finish_publish(view, wish, *staging, *known);
}

}  // namespace corbd::plan
