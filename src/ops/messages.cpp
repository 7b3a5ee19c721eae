#include "messages.hpp"

#include <algorithm>

#include "corbd/rpc/utf8.hpp"

namespace corbd::ops {
namespace {

using rpc::valid_utf8;

template <class Duration>
std::int64_t ms(Duration of) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(of).count();
}

v1::Health to_message(volume::Health health) {
  switch (health) {
    case volume::Health::absent:
      return v1::HEALTH_ABSENT;
    case volume::Health::staging:
      return v1::HEALTH_STAGING;
    case volume::Health::staged:
      return v1::HEALTH_STAGED;
    case volume::Health::reconnecting:
      return v1::HEALTH_RECONNECTING;
    case volume::Health::unproven:
      return v1::HEALTH_UNPROVEN;
    case volume::Health::lost:
      return v1::HEALTH_LOST;
    case volume::Health::failed:
      return v1::HEALTH_FAILED;
    case volume::Health::unstaging:
      return v1::HEALTH_UNSTAGING;
  }
  return v1::HEALTH_UNSPECIFIED;
}

v1::Verdict to_message(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return v1::VERDICT_OK;
    case Verdict::warning:
      return v1::VERDICT_WARNING;
    case Verdict::critical:
      return v1::VERDICT_CRITICAL;
  }
  return v1::VERDICT_UNSPECIFIED;
}

/// Splits "pool/namespace/image" or "pool/image". A name of RBD has no slash.
void name_image(v1::Volume& into, const std::string& text) {
  const auto first = text.find('/'), last = text.rfind('/');
  into.set_pool(valid_utf8(text.substr(0, first)));
  if (first == std::string::npos) return;
  if (last > first) into.set_namespace_(valid_utf8(text.substr(first + 1, last - first - 1)));
  into.set_image(valid_utf8(text.substr(last + 1)));
}

void fill(v1::CephKey& into, const volume::ShownKey& key) {
  into.set_user(valid_utf8(key.user));
  into.set_fingerprint(key.fingerprint);
  into.set_type(std::string(cephcsi::name(key.type)));
  if (key.made) into.set_made_at_ms(ms(key.made->time_since_epoch()));
}

void fill(v1::Healing& into, const heal::HealEntry& entry, const heal::HealQueue& queue, time_point now) {
  into.set_attempts(entry.attempts);
  into.set_under_way(entry.under_way);
  into.set_next_try_ms(entry.under_way ? 0 : std::max<std::int64_t>(0, ms(entry.due - now)));
  into.set_why(valid_utf8(entry.why));
  into.set_waits_for_cluster(queue.waits_for_cluster(entry.cluster_id));
}

template <class Into>
void add_io_limits(Into& into, const volume::Status& status) {
  for (const auto& [pod, limits] : status.io_limits) {
    auto& one = *into.add_io_limits();
    one.set_pod(valid_utf8(pod));
    one.set_read_iops(limits.read_iops);
    one.set_write_iops(limits.write_iops);
    one.set_read_bytes_per_s(limits.read_bps);
    one.set_write_bytes_per_s(limits.write_bps);
  }
}

}  // namespace

v1::Volume to_message(const volume::Status& status, const heal::HealQueue& queue, time_point now) {
  v1::Volume out;
  out.set_id(valid_utf8(status.volume_id));
  out.set_health(to_message(status.health));
  out.set_since_at_ms(ms(status.since.time_since_epoch()));
  out.set_cluster_id(valid_utf8(status.cluster_id));
  name_image(out, status.image);
  out.set_image_key(valid_utf8(status.image_key));
  if (status.device) {
    out.set_device(*status.device);
    out.set_device_path(device::path(*status.device, status.kind));
  }
  out.set_by_kernel(!traits(status.kind).served);
  out.set_size_bytes(status.size);
  out.set_block(status.block);
  out.set_read_only(status.read_only);
  for (const auto& path : status.staged_at) out.add_staged_at(valid_utf8(path));
  for (const auto& path : status.published_at) out.add_published_at(valid_utf8(path));
  out.set_pvc(valid_utf8(status.pvc));
  out.set_pvc_namespace(valid_utf8(status.pvc_namespace));
  out.set_pv(valid_utf8(status.pv));
  for (const auto& pod : status.pods) out.add_pods(valid_utf8(pod));
  add_io_limits(out, status);
  if (status.keys.present) fill(*out.mutable_key(), *status.keys.present);
  if (status.keys.next) fill(*out.mutable_next_key(), *status.keys.next);
  out.set_why_not_next_key(valid_utf8(status.keys.why_not));
  for (const auto& user : status.keys.others) out.add_other_users(valid_utf8(user));
  out.set_unserved(status.unserved);
  out.set_served_by_other(status.served_by_other);
  out.set_cache_lost(status.cache_lost);
  if (status.caches_before_flush) out.set_caches_before_flush(*status.caches_before_flush);
  if (status.reads) out.set_reads(std::string(image::name(*status.reads)));
  if (status.unserved_since) out.set_unserved_ms(ms(now - *status.unserved_since));
  out.set_waiting(status.waiting);
  out.set_oldest_request_ms(ms(status.oldest));
  out.set_links_lost(status.counts.links_lost);
  out.set_longest_stall_ms(ms(status.counts.longest_stall));
  if (status.quiesces || status.frozen) {
    const auto& freezes = status.counts.freezes;
    out.mutable_freezes()->set_made(freezes.made);
    out.mutable_freezes()->set_refused(freezes.refused);
    out.mutable_freezes()->set_broken(freezes.broken);
    out.mutable_freezes()->set_longest_ms(ms(freezes.longest));
    out.mutable_freezes()->set_frozen(status.frozen);
  }
  out.set_trimmed_bytes(status.counts.trimmed_bytes);
  if (status.counts.trimmed_at) out.set_trimmed_at_ms(ms(status.counts.trimmed_at->time_since_epoch()));
  if (const auto used = used_now(status, now)) {
    out.set_used_bytes(*used);
    out.set_used_age_ms(ms(now - status.used->at));
  }
  out.set_why_not_trimmed(valid_utf8(status.why_not_trimmed));
  if (status.last_error) {
    out.mutable_last_error()->set_code(std::string(name(status.last_error->code)));
    out.mutable_last_error()->set_text(valid_utf8(status.last_error->text));
  }
  const auto entry = queue.entries().find(status.volume_id);
  if (entry != queue.entries().end()) fill(*out.mutable_healing(), entry->second, queue, now);
  return out;
}

v1::FsckResponse to_message(const volume::ManualCheck& check) {
  using State = volume::ManualCheck::State;
  v1::FsckResponse out;
  out.set_state(check.state == State::waits   ? v1::CHECK_WAITS
                : check.state == State::works ? v1::CHECK_WORKS
                                              : v1::CHECK_DONE);
  out.set_repair(check.repair);
  out.set_lasts_ms(ms(check.lasts));
  out.set_device(valid_utf8(check.device));
  if (check.state != State::done) return out;
  if (check.found) {
    out.set_clean(check.found->clean);
    out.set_command(valid_utf8(check.found->command));
    out.set_report(valid_utf8(check.found->report));
  } else {
    out.mutable_failure()->set_code(std::string(name(check.found.error().code)));
    out.mutable_failure()->set_text(valid_utf8(check.found.error().text));
  }
  return out;
}

v1::Activity activity_of(const volume::Status& status, time_point now) {
  v1::Activity out;
  out.set_id(valid_utf8(status.volume_id));
  out.set_health(to_message(status.health));
  out.set_pvc(valid_utf8(status.pvc));
  out.set_pvc_namespace(valid_utf8(status.pvc_namespace));
  out.set_by_kernel(!traits(status.kind).served);
  add_io_limits(out, status);
  out.set_in_flight(status.in_flight);
  out.set_oldest_request_ms(ms(status.oldest));
  if (const auto used = used_now(status, now)) out.set_used_bytes(*used);
  out.set_slow_requests(status.figures.slow);
  out.set_budget_wait_us(status.figures.still_micros);
  for (std::size_t i = 0; i < status.figures.by.size(); ++i) {
    const auto& of = status.figures.by.at(i);
    auto& into = *out.add_operations();
    into.set_operation(std::string(device::kRequestKinds.at(i)));
    into.set_requests(of.requests);
    into.set_bytes(of.bytes);
    into.set_errors(of.errors);
    into.set_latency_us(of.micros);
    for (const auto count : of.latency) into.add_latency(count);
  }
  return out;
}

v1::Change to_message(const volume::Change& change) {
  v1::Change out;
  out.set_at_ms(ms(change.at.time_since_epoch()));
  out.set_volume_id(valid_utf8(change.volume_id));
  out.set_from(to_message(change.from));
  out.set_to(to_message(change.to));
  out.set_why(valid_utf8(change.why));
  return out;
}

void count(v1::GetStatusResponse& into, const NodeFacts& facts) {
  for (const auto& [health, volumes] : facts.volumes) {
    auto* entry = into.add_volumes();
    entry->set_health(to_message(health));
    entry->set_volumes(volumes);
  }
  for (const auto& [id, of] : facts.clusters) {
    auto* cluster = into.add_clusters();
    cluster->set_id(valid_utf8(id));
    cluster->set_volumes(of.volumes);
    cluster->set_unserved(of.unserved);
    cluster->set_oldest_request_ms(ms(of.oldest_request));
    cluster->set_node_fenced(valid_utf8(of.node_fenced));
    cluster->set_does_not_answer(of.does_not_answer);
  }
}

void add_health(v1::GetStatusResponse& into, const NodeHealth& health) {
  for (const auto& component : health.components) {
    auto* entry = into.add_components();
    entry->set_name(valid_utf8(component.name));
    entry->set_verdict(to_message(component.verdict));
    entry->set_text(valid_utf8(component.text));
    entry->set_keeps_from_serving(component.holds != Component::Holds::nothing);
  }
  into.set_verdict(to_message(health.verdict()));
  into.set_ready(health.ready());
}

bool of_another_driver(const volume::Unclaimed& device, const std::string& driver) {
  constexpr std::string_view folder = "/kubernetes.io/csi/";
  return std::ranges::any_of(device.mounts, [&](const std::string& path) {
    const auto at = path.find(folder);
    if (at == std::string::npos) return false;
    const auto begin = at + folder.size();
    const std::string name = path.substr(begin, path.find('/', begin) - begin);
    // Raw block has a folder for all drivers; before Kubernetes 1.24 filesystems had one too.
    return name != driver && name != "volumeDevices" && name != "pv";
  });
}

void add_unclaimed(v1::GetStatusResponse& into, const NodeFacts& facts) {
  std::uint32_t served = 0, others = 0;
  for (const auto& [kind, devices] : facts.unclaimed) (traits(kind).served ? served : others) += devices;
  into.set_unclaimed_nbd(served);
  into.set_unclaimed_krbd(others);
}

void add_stuck(v1::GetStatusResponse& into, const std::vector<Hanging>& hanging) {
  for (const auto& one : hanging) {
    auto* entry = into.add_stuck_helpers();
    entry->set_what(valid_utf8(one.what));
    entry->set_pid(one.pid);
    entry->set_since_ms(ms(one.since));
  }
}

}  // namespace corbd::ops
