#include "full_pool.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>

namespace corbd::rbd {
namespace {

bool has_flag(std::string_view names, std::string_view flag) {
  for (std::size_t from = 0; from <= names.size();) {
    const auto end = std::min(names.find(',', from), names.size());
    if (names.substr(from, end - from) == flag) return true;
    from = end + 1;
  }
  return false;
}

Error not_a_list_of_pools() { return {errc::unavailable, "the monitors' list of pools is not what this agent knows"}; }

}  // namespace

result<std::optional<FullPool>> find_full_pool(std::string_view json, std::int64_t pool_id) {
  boost::system::error_code failed;
  const auto all = boost::json::parse(json, failed);
  if (failed || !all.is_array()) return not_a_list_of_pools();
  for (const auto& one : all.get_array()) {
    const auto* pool = one.if_object();
    const auto* id = pool == nullptr ? nullptr : pool->if_contains("pool_id");
    if (id == nullptr || !id->is_int64() || id->get_int64() != pool_id) continue;
    const auto* name = pool->if_contains("pool_name");
    const auto* flags = pool->if_contains("flags_names");
    if (name == nullptr || !name->is_string() || flags == nullptr || !flags->is_string()) return not_a_list_of_pools();
    const std::string_view names = flags->get_string();
    if (!has_flag(names, "full")) return std::nullopt;
    return FullPool{std::string(name->get_string()), has_flag(names, "full_quota")};
  }
  return not_a_list_of_pools();
}

std::string text_of(const FullPool& pool) {
  const std::string full = "pool " + pool.name + " is full, and writes to it wait: ";
  if (pool.by_quota)
    return full + "its quota is reached. Raise it: `ceph osd pool set-quota " + pool.name +
           " max_bytes MORE`, or max_objects";
  return full +
         "OSDs of it are full. `ceph health detail` names them. Add OSDs, or delete images: before that raise the full "
         "ratio, because a full pool refuses deletions (docs/bad-days.md#full-pools-and-quotas)";
}

}  // namespace corbd::rbd
