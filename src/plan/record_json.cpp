#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/fields_json.hpp"
#include "corbd/plan/record.hpp"

template <>
struct corbd::fields::Written<corbd::device::Kind> {
  static std::string to(device::Kind kind) { return std::string(traits(kind).name); }
  static result<device::Kind> from(const std::string& name) {
    if (const auto* found = device::find_kind(name)) return found->kind;
    return Error{errc::state_corrupt, "no kind of device: " + name};
  }
};

template <>
struct corbd::fields::Written<corbd::cephcsi::OnDamage> {
  static std::string to(cephcsi::OnDamage policy) { return std::string(cephcsi::name(policy)); }
  static result<cephcsi::OnDamage> from(const std::string& name) {
    for (const auto policy : {cephcsi::OnDamage::refuse, cephcsi::OnDamage::read_only})
      if (cephcsi::name(policy) == name) return policy;
    return name == cephcsi::name(cephcsi::OnDamage::fsck) ? cephcsi::OnDamage::fsck
                                                          : cephcsi::OnDamage::refuse;  // a later version's word
  }
};

namespace corbd::plan {
namespace {

namespace json = boost::json;

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> sum;
  sum.process_bytes(bytes.data(), bytes.size());
  return sum.checksum();
}

/// Memory for one record's values: few allocations, or none.
class StackMemory {
 public:
  json::storage_ptr storage() { return &resource_; }

 private:
  std::array<unsigned char, 8192> buffer_;
  json::monotonic_resource resource_{buffer_.data(), buffer_.size()};
};

}  // namespace

std::string encode(const Record& record) {
  StackMemory memory;
  const std::string body = json::serialize(fields::to_json(record, memory.storage()));
  const int version = record.encrypts_files() ? record_version : plain_record_version;
  // Concatenate the text, so that the sum covers the very bytes of the file.
  return "{\"version\":" + std::to_string(version) + ",\"crc32c\":" + std::to_string(crc32c(body)) +
         ",\"record\":" + body + "}\n";
}

result<Record> decode(std::string_view bytes) {
  try {
    StackMemory memory;
    const auto file = json::parse(json::string_view(bytes.data(), bytes.size()), memory.storage()).as_object();
    const auto version = file.at("version").to_number<int>();
    if (version > record_version)
      return Error{errc::state_newer, "record version " + std::to_string(version) + ", this agent reads " +
                                          std::to_string(record_version)};
    const auto& body = file.at("record").as_object();
    if (file.at("crc32c").to_number<std::uint32_t>() != crc32c(json::serialize(body)))
      return Error{errc::state_corrupt, "the record's sum is wrong"};
    return fields::from_json<Record>(body, "record");
  } catch (const std::bad_alloc&) {
    return Error{errc::unavailable, "no memory to read a record"};
  } catch (const std::exception& failed) {
    return Error{errc::state_corrupt, std::string("not a record: ") + failed.what()};
  }
}

}  // namespace corbd::plan
