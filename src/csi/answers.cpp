#include "answers.hpp"

#include "corbd/rpc/utf8.hpp"

namespace corbd::csi {
namespace {

namespace v1 = ::csi::v1;
using Kind = volume::Condition::Kind;

/// Bytes of a message that Kubernetes stores with a pod or a CSINode (docs/sources.md#volume-health).
constexpr std::size_t kMaxMessage = 1024;

std::string message_of(std::string_view text) { return rpc::valid_utf8(text.substr(0, kMaxMessage)); }

}  // namespace

void fill(v1::NodeGetVolumeStatsResponse& into, const host::Usage& usage, const volume::Status& status) {
  auto* bytes = into.add_usage();
  bytes->set_unit(v1::VolumeUsage::BYTES);
  bytes->set_total(static_cast<std::int64_t>(usage.bytes));
  // kubelet reads a missing value as 0, so its metrics of a block volume that was not counted have 0 for both. Never
  // set one without the other: with "used" alone, the usual alerts would call the volume full.
  bytes->set_used(static_cast<std::int64_t>(usage.bytes_used));
  bytes->set_available(static_cast<std::int64_t>(usage.bytes_available));
  if (!status.block) {
    auto* inodes = into.add_usage();
    inodes->set_unit(v1::VolumeUsage::INODES);
    inodes->set_total(static_cast<std::int64_t>(usage.inodes));
    inodes->set_used(static_cast<std::int64_t>(usage.inodes_used));
    inodes->set_available(static_cast<std::int64_t>(usage.inodes_available));
  }
  const auto condition = condition_of(status);
  into.mutable_volume_condition()->set_abnormal(condition.kind != Kind::healthy);
  into.mutable_volume_condition()->set_message(rpc::valid_utf8(condition.message));
}

void fill(v1::NodeGetVolumeHealthResponse& into, const volume::Status& status) {
  into.mutable_volume_health()->set_volume_id(status.volume_id);
  const auto condition = condition_of(status);
  if (condition.kind == Kind::healthy) return;
  auto* entry = into.mutable_volume_health()->add_health_statuses();
  entry->set_status(condition.kind == Kind::degraded ? v1::DEGRADED : v1::INACCESSIBLE);
  entry->set_reason(condition.reason);
  entry->set_message(message_of(condition.message));
}

void fill(v1::NodeGetStorageHealthResponse& into, const std::vector<BackendCondition>& conditions) {
  for (const auto& condition : conditions) {
    auto* entry = into.add_backend_health();
    entry->set_status(condition.unreachable ? v1::STORAGE_UNREACHABLE : v1::STORAGE_DEGRADED);
    entry->set_reason(condition.reason);
    entry->set_message(message_of(condition.message));
  }
}

}  // namespace corbd::csi
