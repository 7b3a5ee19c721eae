#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>

#include "corbd/plan/record.hpp"

namespace corbd::plan {
namespace {

namespace json = boost::json;

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> sum;
  sum.process_bytes(bytes.data(), bytes.size());
  return sum.checksum();
}

/// Memory for one record's values: few allocations, or none.
class AtHand {
 public:
  json::storage_ptr storage() { return &resource_; }

 private:
  std::array<unsigned char, 8192> buffer_;
  json::monotonic_resource resource_{buffer_.data(), buffer_.size()};
};

json::object to_json(const Capability& capability, const json::storage_ptr& memory) {
  return json::object({{"block", capability.block},
                       {"fstype", capability.fstype},
                       {"mount_flags", capability.mount_flags},
                       {"read_only", capability.read_only},
                       {"single_writer", capability.single_writer},
                       {"shared", capability.shared}},
                      memory);
}

json::object to_json(const Serving& serving, const json::storage_ptr& memory) {
  json::object config(memory);
  for (const auto& [name, value] : serving.config) config[name] = value;
  json::object out({{"trim", serving.trim}, {"config", std::move(config)}}, memory);
  if (serving.cache_off) out["cache_off"] = true;
  if (serving.same_timeout) out["same_timeout"] = true;
  if (serving.dead_conn_timeout_s) out["dead_conn_timeout_s"] = *serving.dead_conn_timeout_s;
  return out;
}

json::object to_json(const Source& source, const json::storage_ptr& memory) {
  json::object out({{"cluster_id", source.cluster_id},
                    {"pool", source.pool},
                    {"ns", source.ns},
                    {"image", source.image},
                    {"mkfs_options", source.mkfs_options}},
                   memory);
  if (source.serving != Serving()) out["serving"] = to_json(source.serving, memory);
  if (source.kernel != KernelOptions())
    out["kernel"] = json::object({{"map", source.kernel.map}, {"unmap", source.kernel.unmap}}, memory);
  return out;
}

json::object to_json(const IoLimits& limits, const json::storage_ptr& memory) {
  return json::object({{"read_iops", limits.read_iops},
                       {"write_iops", limits.write_iops},
                       {"read_bps", limits.read_bps},
                       {"write_bps", limits.write_bps}},
                      memory);
}

json::object to_json(const Publish& publish, const json::storage_ptr& memory) {
  json::object out({{"target", publish.target}, {"staging", publish.staging}, {"read_only", publish.read_only}},
                   memory);
  if (!publish.pod.empty()) out["pod"] = publish.pod;
  if (!publish.limits.empty()) out["limits"] = to_json(publish.limits, memory);
  return out;
}

json::object to_json(const PvcRef& claim, const json::storage_ptr& memory) {
  return json::object({{"name", claim.name}, {"namespace", claim.name_space}, {"volume", claim.volume}}, memory);
}

json::object to_json(const Record& record, const json::storage_ptr& memory) {
  json::array stagings(memory), publishes(memory);
  for (const auto& staging : record.stagings)
    stagings.push_back(json::object(
        {{"path", staging.path}, {"capability", to_json(staging.capability, memory)}, {"complete", staging.complete}},
        memory));
  for (const auto& publish : record.publishes) publishes.push_back(to_json(publish, memory));
  json::object out({{"volume_id", record.volume_id},
                    {"driver", record.driver},
                    {"source", to_json(record.source, memory)},
                    {"user", record.user},
                    {"key", json::object({{"fsid", record.key.fsid},
                                          {"pool_id", record.key.pool_id},
                                          {"ns", record.key.ns},
                                          {"image_id", record.key.image_id},
                                          {"snap_id", record.key.snap_id}},
                                         memory)},
                    {"size", record.size},
                    {"block_size", record.block_size},
                    {"exclusive_lock", record.exclusive_lock},
                    {"block", record.block},
                    {"read_only", record.read_only},
                    {"shared", record.shared},
                    {"adopting", record.adopting},
                    {"failed", record.failed},
                    {"boot_id", record.boot_id},
                    {"attachment_uid", record.attachment_uid},
                    {"stagings", std::move(stagings)},
                    {"publishes", std::move(publishes)}},
                   memory);
  if (!record.node.empty()) out["node"] = record.node;
  if (record.kind != Record().kind) out["kind"] = traits(record.kind).name;
  if (record.cache_lost) out["cache_lost"] = true;
  if (!record.uncached.empty()) out["uncached"] = record.uncached;
  if (!record.signed_as.empty()) out["signed_as"] = record.signed_as;
  if (!record.kms_id.empty()) out["kms_id"] = record.kms_id;
  if (!record.file_kms_id.empty()) out["file_kms_id"] = record.file_kms_id;
  if (!record.tenant.empty()) out["tenant"] = record.tenant;
  if (record.device) out["device"] = *record.device;
  if (record.breaking) out["breaking"] = *record.breaking;
  if (record.freed) out["freed"] = *record.freed;
  if (record.modified) out["modified"] = *record.modified;
  if (!record.format.empty()) out["format"] = record.format;
  if (record.format_version) out["format_version"] = *record.format_version;
  if (record.operator_override) out["on_word"] = true;
  if (record.provisioned) out["provisioned"] = true;
  if (!record.claim.empty()) out["claim"] = to_json(record.claim, memory);
  if (!record.io_limits.empty()) out["io_limits"] = to_json(record.io_limits, memory);
  if (record.note) out["note"] = json::object({{"user", record.note->user}, {"address", record.note->address}}, memory);
  return out;
}

std::string string_at(const json::object& from, const char* key) { return std::string(from.at(key).as_string()); }

template <class Number>
Number number_at(const json::object& from, const char* key) {
  return from.at(key).to_number<Number>();
}

Capability capability_of(const json::object& from) {
  Capability capability;
  capability.block = from.at("block").as_bool();
  capability.fstype = string_at(from, "fstype");
  capability.mount_flags = string_at(from, "mount_flags");
  capability.read_only = from.at("read_only").as_bool();
  capability.single_writer = from.at("single_writer").as_bool();
  capability.shared = from.contains("shared") && from.at("shared").as_bool();
  return capability;
}

Serving serving_of(const json::object& from) {
  Serving serving;
  serving.trim = from.at("trim").as_bool();
  serving.cache_off = from.contains("cache_off") && from.at("cache_off").as_bool();
  serving.same_timeout = from.contains("same_timeout") && from.at("same_timeout").as_bool();
  if (from.contains("dead_conn_timeout_s"))
    serving.dead_conn_timeout_s = number_at<std::uint64_t>(from, "dead_conn_timeout_s");
  for (const auto& option : from.at("config").as_object()) serving.config[option.key()] = option.value().as_string();
  return serving;
}

Source source_of(const json::object& from) {
  Source source{string_at(from, "cluster_id"), string_at(from, "pool"), string_at(from, "ns"), string_at(from, "image"),
                string_at(from, "mkfs_options")};
  if (from.contains("serving")) source.serving = serving_of(from.at("serving").as_object());
  if (from.contains("kernel"))
    source.kernel = {string_at(from.at("kernel").as_object(), "map"),
                     string_at(from.at("kernel").as_object(), "unmap")};
  return source;
}

device::Kind kind_of(const std::string& text) {
  const auto* found = device::find_kind(text);
  if (found == nullptr) throw std::invalid_argument("a device of kind " + text);
  return found->kind;
}

IoLimits limits_of(const json::object& from) {
  const auto number = [&](const char* name) { return from.at(name).to_number<std::uint64_t>(); };
  return {number("read_iops"), number("write_iops"), number("read_bps"), number("write_bps")};
}

Publish publish_of(const json::object& from) {
  Publish publish{string_at(from, "target"), string_at(from, "staging"), from.at("read_only").as_bool(),
                  from.contains("pod") ? string_at(from, "pod") : ""};
  if (from.contains("limits")) publish.limits = limits_of(from.at("limits").as_object());
  return publish;
}

Record record_of(const json::object& from) {
  Record record;
  record.volume_id = string_at(from, "volume_id");
  record.driver = string_at(from, "driver");
  record.source = source_of(from.at("source").as_object());
  record.user = string_at(from, "user");
  const auto& key = from.at("key").as_object();
  record.key.fsid = string_at(key, "fsid");
  record.key.pool_id = number_at<std::int64_t>(key, "pool_id");
  record.key.ns = string_at(key, "ns");
  record.key.image_id = string_at(key, "image_id");
  record.key.snap_id = number_at<std::uint64_t>(key, "snap_id");
  record.size = number_at<std::uint64_t>(from, "size");
  record.block_size = number_at<std::uint32_t>(from, "block_size");
  record.exclusive_lock = from.at("exclusive_lock").as_bool();
  record.block = from.at("block").as_bool();
  record.read_only = from.at("read_only").as_bool();
  record.shared = from.contains("shared") && from.at("shared").as_bool();
  record.adopting = from.contains("adopting") && from.at("adopting").as_bool();
  record.cache_lost = from.contains("cache_lost") && from.at("cache_lost").as_bool();
  if (from.contains("uncached")) record.uncached = string_at(from, "uncached");
  record.failed = from.contains("failed") && from.at("failed").as_bool();
  record.boot_id = string_at(from, "boot_id");
  record.attachment_uid = string_at(from, "attachment_uid");
  if (from.contains("node")) record.node = string_at(from, "node");
  if (from.contains("signed_as")) record.signed_as = string_at(from, "signed_as");
  if (from.contains("kind")) record.kind = kind_of(string_at(from, "kind"));
  if (from.contains("kms_id")) record.kms_id = string_at(from, "kms_id");
  if (from.contains("file_kms_id")) record.file_kms_id = string_at(from, "file_kms_id");
  if (from.contains("tenant")) record.tenant = string_at(from, "tenant");
  if (from.contains("device")) record.device = number_at<std::uint32_t>(from, "device");
  if (from.contains("breaking")) record.breaking = number_at<std::uint64_t>(from, "breaking");
  if (from.contains("freed")) record.freed = number_at<std::uint64_t>(from, "freed");
  if (from.contains("modified")) record.modified = number_at<std::uint64_t>(from, "modified");
  if (from.contains("format")) record.format = string_at(from, "format");
  if (from.contains("format_version")) record.format_version = number_at<std::uint64_t>(from, "format_version");
  record.operator_override = from.contains("on_word") && from.at("on_word").as_bool();
  record.provisioned = from.contains("provisioned") && from.at("provisioned").as_bool();
  if (from.contains("note")) {
    const auto& note = from.at("note").as_object();
    record.note = Note{string_at(note, "user"), string_at(note, "address")};
  }
  if (from.contains("io_limits")) record.io_limits = limits_of(from.at("io_limits").as_object());
  if (from.contains("claim")) {
    const auto& claim = from.at("claim").as_object();
    record.claim = PvcRef{string_at(claim, "name"), string_at(claim, "namespace"), string_at(claim, "volume")};
  }
  for (const auto& entry : from.at("stagings").as_array())
    record.stagings.push_back({string_at(entry.as_object(), "path"), capability_of(entry.at("capability").as_object()),
                               entry.at("complete").as_bool()});
  for (const auto& entry : from.at("publishes").as_array()) record.publishes.push_back(publish_of(entry.as_object()));
  return record;
}

}  // namespace

std::string encode(const Record& record) {
  AtHand memory;
  const std::string body = json::serialize(to_json(record, memory.storage()));
  const int version = record.file_kms_id.empty() ? plain_record_version : record_version;
  // Written by hand, so that the sum covers the very bytes of the file.
  return "{\"version\":" + std::to_string(version) + ",\"crc32c\":" + std::to_string(crc32c(body)) +
         ",\"record\":" + body + "}\n";
}

result<Record> decode(std::string_view bytes) {
  try {
    AtHand memory;
    const auto file = json::parse(json::string_view(bytes.data(), bytes.size()), memory.storage()).as_object();
    const auto version = file.at("version").to_number<int>();
    if (version > record_version)
      return Error{errc::state_newer, "record version " + std::to_string(version) + ", this agent reads " +
                                          std::to_string(record_version)};
    const auto& body = file.at("record").as_object();
    if (file.at("crc32c").to_number<std::uint32_t>() != crc32c(json::serialize(body)))
      return Error{errc::state_corrupt, "the record's sum is wrong"};
    return record_of(body);
  } catch (const std::bad_alloc&) {
    return Error{errc::unavailable, "no memory to read a record"};
  } catch (const std::exception& failed) {
    return Error{errc::state_corrupt, std::string("not a record: ") + failed.what()};
  }
}

}  // namespace corbd::plan
