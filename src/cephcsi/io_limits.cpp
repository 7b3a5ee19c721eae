#include "corbd/cephcsi/io_limits.hpp"

#include <charconv>

namespace corbd::cephcsi {
namespace {

std::uint64_t number_at(const std::map<std::string, std::string>& metadata, std::string_view name) {
  const auto place = metadata.find(std::string(kIoLimits).append(name));
  if (place == metadata.end()) return 0;
  const std::string& text = place->second;
  std::uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() && end == text.data() + text.size() ? number : 0;
}

std::string word(const char* name, std::uint64_t limit) {
  return std::string(" ") + name + "=" + (limit == 0 ? "max" : std::to_string(limit));
}

}  // namespace

IoLimits io_limits_of(const std::map<std::string, std::string>& metadata) {
  return {number_at(metadata, "read_iops"), number_at(metadata, "write_iops"), number_at(metadata, "read_bps"),
          number_at(metadata, "write_bps")};
}

std::string io_max(const IoLimits& limits, std::uint32_t dev_major, std::uint32_t dev_minor) {
  return std::to_string(dev_major) + ":" + std::to_string(dev_minor) + word("rbps", limits.read_bps) +
         word("wbps", limits.write_bps) + word("riops", limits.read_iops) + word("wiops", limits.write_iops);
}

}  // namespace corbd::cephcsi
