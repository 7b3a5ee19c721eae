// The limits that a VolumeAttributesClass of ceph-csi 3.18 gives to a volume, as its controller leaves them in the
// image's metadata and its node plugin puts them into the pod's cgroup (docs/sources.md#io-limits). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "corbd/core/fields.hpp"

namespace corbd::cephcsi {

/// Limits per second; 0: none.
struct IoLimits {
  std::uint64_t read_iops = 0, write_iops = 0, read_bps = 0, write_bps = 0;
  bool empty() const { return *this == IoLimits(); }
  static constexpr std::tuple fields{
      fields::required("read_iops", &IoLimits::read_iops), fields::required("write_iops", &IoLimits::write_iops),
      fields::required("read_bps", &IoLimits::read_bps), fields::required("write_bps", &IoLimits::write_bps)};
  bool operator==(const IoLimits&) const = default;
};

/// Prefix of the names in that metadata.
inline constexpr std::string_view kIoLimits = ".rbd.csi.ceph.com/cgroup_qos_max_";
/// A value that is no number counts as no limit.
IoLimits io_limits_of(const std::map<std::string, std::string>& metadata);

/// Makes a line for cgroup v2's io.max: "43:0 rbps=max wbps=1048576 riops=max wiops=100".
std::string io_max(const IoLimits& limits, std::uint32_t dev_major, std::uint32_t dev_minor);

}  // namespace corbd::cephcsi
