#include "view.hpp"

#include <algorithm>

#include "corbd/core/display.hpp"
#include "corbd/rpc/json.hpp"

namespace corbd::cli {
namespace {

using std::chrono::milliseconds;
using Rows = std::vector<std::vector<std::string>>;

std::string age(std::int64_t ms) { return duration_text(milliseconds(ms)); }

std::string many(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string joined(const google::protobuf::RepeatedPtrField<std::string>& texts, const char* between) {
  std::string out;
  for (const auto& text : texts) out += (out.empty() ? "" : between) + for_terminal(text);
  return out;
}

std::string claim_of(const v1::Volume& volume) {
  return volume.pvc().empty() ? "" : volume.pvc_namespace() + "/" + volume.pvc();
}

/// Names the device of a volume, or a device without one.
template <class Message>
std::string path_of(const Message& device) {
  if (!device.device_path().empty()) return for_terminal(device.device_path());
  // An agent that does not know this field has only two kinds.
  return (device.by_kernel() ? "/dev/rbd" : "/dev/nbd") + std::to_string(device.device());
}

std::string device_of(const v1::Volume& volume) { return volume.has_device() ? path_of(volume) : ""; }

/// Names the program that answers the volume's requests now.
std::string server_of(const v1::Volume& volume) {
  if (!volume.has_device() || volume.unserved() || volume.health() == v1::HEALTH_ABSENT) return "";
  if (volume.by_kernel()) return "kernel";
  return volume.served_by_other() ? "rbd-nbd" : "corbd";
}

/// Contains no blank, because scripts split the columns at blanks.
std::string state_of(const v1::Volume& volume) {
  return word(volume.health()) + (volume.cache_lost() ? ",cache-lost" : "");
}

std::string loss_of(const v1::Volume& volume) {
  if (!volume.cache_lost()) return "";
  return "rbd-nbd died with writes that it had not stored: every flush fails until the volume is unstaged, or until "
         "`corbd "
         "heal " +
         for_terminal(volume.id()) + " --loss-accepted`";
}

std::string snapshots_of(const v1::Volume& volume) {
  if (!volume.has_freezes()) return "";
  const auto& of = volume.freezes();
  return (volume.block() ? "hold requests back: " : "freeze the filesystem: ") + std::to_string(of.made()) + " made, " +
         std::to_string(of.refused()) + " refused, " + std::to_string(of.broken()) + " broken, longest " +
         age(of.longest_ms()) + (of.frozen() ? "; frozen now" : "");
}

std::string error_of(const v1::Volume& volume) {
  return volume.has_last_error() ? volume.last_error().code() + ": " + volume.last_error().text() : "";
}

std::string service_of(const v1::Volume& volume) {
  std::string line = "serving";
  if (volume.served_by_other())
    line = "rbd-nbd serves it; this agent takes over when rbd-nbd ends";
  else if (volume.unserved())
    line = "none for " + age(volume.unserved_ms());
  else if (!volume.has_device())
    line = "none needed: it has no device";
  else if (volume.health() == v1::HEALTH_ABSENT)
    line = "none: the kernel has no device for it";
  line += ", " + many(volume.waiting(), "request") + " in the kernel's queue";
  if (volume.oldest_request_ms() > 0)
    line += ", the oldest unanswered request is " + age(volume.oldest_request_ms()) + " old";
  return line;
}

std::string reads_of(const v1::Volume& volume) {
  if (volume.reads() == "primary") return "the primary OSD";
  if (volume.reads() == "balance") return "any OSD that has the data (balance)";
  if (volume.reads() == "localize") return "the nearest OSD (localize)";
  return volume.reads();
}

std::string healing_of(const v1::Volume& volume) {
  if (!volume.has_healing()) return "";
  const auto& healing = volume.healing();
  std::string line = many(healing.attempts(), "failed attempt");
  if (healing.under_way())
    line += ", one under way";
  else if (healing.waits_for_cluster())
    line += volume.last_error().code() == "pool_full" ? ", waits until its pool has room"
                                                      : ", waits until its cluster answers";
  else
    line += healing.next_try_ms() > 0 ? ", the next in " + age(healing.next_try_ms()) : ", the next is due";
  return line + "; reason: " + healing.why();
}

std::string trimmed_of(const v1::Volume& volume) {
  if (volume.trimmed_bytes() == 0 && !volume.has_trimmed_at_ms() && volume.why_not_trimmed().empty()) return "<none>";
  std::string line = size_text(volume.trimmed_bytes()) + " since start";
  if (volume.has_trimmed_at_ms()) line += ", to the end at " + time_text(volume.trimmed_at_ms());
  return volume.why_not_trimmed().empty() ? line : line + "; not now: " + for_terminal(volume.why_not_trimmed());
}

/// Nobody counts what a filesystem's image uses: df(1) says how full the filesystem is.
std::string used_of(const v1::Volume& volume) {
  if (!volume.has_used_bytes()) return "<none>";
  return size_text(volume.used_bytes()) + " of the image, counted " + age(volume.used_age_ms()) + " ago";
}

}  // namespace

std::string word(v1::Verdict verdict) {
  return verdict == v1::VERDICT_OK ? "OK" : verdict == v1::VERDICT_CRITICAL ? "Critical" : "Warning";
}

int exit_code(const v1::GetStatusResponse& status) {
  return status.verdict() == v1::VERDICT_OK ? 0 : status.verdict() == v1::VERDICT_CRITICAL ? 2 : 1;
}

std::string word(v1::Health health) { return rpc::enum_word(*v1::Health_descriptor(), health); }

std::string program_view(const v1::Program& program) {
  return "corbd " + program.version() + " (" + program.commit() +
         ")\nCeph libraries: " + (program.ceph().empty() ? "unknown release" : program.ceph()) + " (librados " +
         program.librados() + ", librbd " + program.librbd() + ")\nhandover: version " +
         std::to_string(program.handover_protocol()) + "\nrecords: up to version " +
         std::to_string(program.record_version()) + ", written from version " +
         std::to_string(program.plain_record_version()) + "\nincarnation files: version " +
         std::to_string(program.incarnation_version()) + "\nkeeper: protocol " +
         std::to_string(program.keeper_protocol()) + "\nledgers: version " + std::to_string(program.ledger_version()) +
         "\nclaims: version " + std::to_string(program.claim_version()) + "\n";
}

std::string status_screen(const v1::GetStatusResponse& status) {
  Rows rows{{"COMPONENT", "VERDICT", "DETAILS"}};
  for (const auto& component : status.components()) {
    std::string details = for_terminal(component.text());
    if (component.name() == "agent")
      details = "corbd " + for_terminal(status.version()) + " on node " + cell(status.node_id()) + ", pid " +
                std::to_string(status.pid()) + ", up " + age(status.uptime_ms()) + "; " + details;
    rows.push_back({cell(component.name()), word(component.verdict()), details});
  }
  if (status.components().empty())
    rows.push_back({"agent", word(status.verdict()),
                    "corbd " + for_terminal(status.version()) +
                        " is older than this program and judges nothing: restart it to bring it up to date"});
  return table(rows) + "\nOverall: " + word(status.verdict()) +
         (status.ready() || status.components().empty() ? "" : ", not ready") + "\n";
}

std::string volumes_table(const v1::ListVolumesResponse& volumes, bool wide, std::int64_t now_ms) {
  Rows rows{{"ID", "POOL", "NAMESPACE", "IMAGE", "DEVICE", "STATE", "SERVED-BY", "SINCE", "LINKS-LOST", "LONGEST-STALL",
             "PVC"}};
  if (wide)
    rows.front().insert(rows.front().end(), {"PODS", "SIZE", "STAGED-AT", "PUBLISHED-AT", "ATTEMPTS", "LAST-ERROR"});
  for (const auto& volume : volumes.volumes()) {
    auto& row = rows.emplace_back(std::vector<std::string>{
        cell(volume.id()), cell(volume.pool()), cell(volume.namespace_()), cell(volume.image()),
        cell(device_of(volume)), state_of(volume), cell(server_of(volume)), age(now_ms - volume.since_at_ms()),
        std::to_string(volume.links_lost()), age(volume.longest_stall_ms()), cell(claim_of(volume))});
    if (wide)
      row.insert(row.end(), {cell(joined(volume.pods(), ",")), size_text(volume.size_bytes()),
                             cell(joined(volume.staged_at(), ",")), cell(joined(volume.published_at(), ",")),
                             std::to_string(volume.healing().attempts()), cell(error_of(volume))});
  }
  if (volumes.unclaimed().empty()) return table(rows);
  Rows left{{"UNCLAIMED", "VOLUME", "WHY THIS AGENT DOES NOT SERVE IT"}};
  for (const auto& device : volumes.unclaimed())
    left.push_back({cell(path_of(device)), cell(device.volume_id()), cell(device.why())});
  return table(rows) + "\n" + table(left);
}

std::string volume_page(const v1::GetVolumeResponse& response, std::int64_t now_ms) {
  const v1::Volume& volume = response.volume();
  const std::string name_space = volume.namespace_().empty() ? "" : volume.namespace_() + "/";
  const Rows rows{
      {"id:", cell(volume.id())},
      {"state:", state_of(volume) + " since " + time_text(volume.since_at_ms()) + " (" +
                     age(now_ms - volume.since_at_ms()) + ")"},
      {"claim:", cell(claim_of(volume))},
      {"PersistentVolume:", cell(volume.pv())},
      {"pods:", cell(joined(volume.pods(), ", "))},
      {"image:", cell(volume.pool() + "/" + name_space + volume.image())},
      {"image key:", cell(volume.image_key())},
      {"cluster:", cell(volume.cluster_id())},
      {"device:", volume.has_device() ? device_of(volume) + ", " + size_text(volume.size_bytes()) : "<none>"},
      {"use:",
       std::string(volume.block() ? "block" : "filesystem") + (volume.read_only() ? ", read-only" : ", read-write")},
      {"staged at:", cell(joined(volume.staged_at(), ", "))},
      {"published at:", cell(joined(volume.published_at(), ", "))},
      {"service:", service_of(volume)},
      {"reads from:", cell(reads_of(volume))},
      {"since start:", many(volume.links_lost(), "link") + " lost, longest stall " + age(volume.longest_stall_ms())},
      {"snapshots:", cell(snapshots_of(volume))},
      {"used:", used_of(volume)},
      {"trimmed:", trimmed_of(volume)},
      {"lost cache:", cell(loss_of(volume))},
      {"healing:", cell(healing_of(volume))},
      {"last error:", cell(error_of(volume))}};
  Rows changes{{"TIME", "FROM", "TO", "WHY"}};
  for (const auto& change : response.timeline())
    changes.push_back({time_text(change.at_ms()), word(change.from()), word(change.to()), cell(change.why())});
  return table(rows) + "\n" + table(changes);
}

std::string event_line(const v1::Change& change) {
  return time_text(change.at_ms()) + "   " + cell(change.volume_id()) + "   " + word(change.from()) + " -> " +
         word(change.to()) + "   " + cell(change.why());
}

}  // namespace corbd::cli
