// A volume id is whatever the orchestrator passes on: a handle that decodes is what its own encoding says, and names
// nothing that climbs.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include "corbd/cephcsi/handle.hpp"

namespace {

bool same_but_case(std::string_view left, std::string_view right) {
  const auto lower = [](unsigned char c) { return std::tolower(c); };
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::cephcsi;
  const std::string_view id(reinterpret_cast<const char*>(data), size);
  if (const auto handle = decode_handle(id)) {
    if (!same_but_case(encode(*handle), id)) std::abort();
    if (handle->cluster_id.find_first_of("/.") != std::string::npos || handle->pool_id < 0) std::abort();
  }
  if (const auto handle = decode_migrated_handle(id)) {
    if (!same_but_case(encode(*handle), id)) std::abort();
    if (handle->pool.find('/') != std::string::npos) std::abort();
  }
  return 0;
}
