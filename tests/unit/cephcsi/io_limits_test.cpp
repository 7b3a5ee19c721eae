// The limits of a VolumeAttributesClass.
#include "corbd/cephcsi/io_limits.hpp"

#include "support/catch.hpp"

using namespace corbd::cephcsi;

TEST_CASE("an image's limits are the four numbers that ceph-csi's controller left in its metadata") {
  const IoLimits limits = io_limits_of({{".rbd.csi.ceph.com/cgroup_qos_max_read_iops", "1000"},
                                        {".rbd.csi.ceph.com/cgroup_qos_max_write_iops", "100"},
                                        {".rbd.csi.ceph.com/cgroup_qos_max_read_bps", "2097152"},
                                        {".rbd.csi.ceph.com/cgroup_qos_max_write_bps", "1048576"}});
  CHECK(limits == IoLimits{1000, 100, 2097152, 1048576});
  CHECK(io_max(limits, 43, 32) == "43:32 rbps=2097152 wbps=1048576 riops=1000 wiops=100");
}

TEST_CASE("a limit that is missing, zero or no number is none") {
  const IoLimits limits = io_limits_of({{".rbd.csi.ceph.com/cgroup_qos_max_read_iops", "0"},
                                        {".rbd.csi.ceph.com/cgroup_qos_max_write_iops", "100"},
                                        {".rbd.csi.ceph.com/cgroup_qos_max_read_bps", "12x"}});
  CHECK(limits == IoLimits{.write_iops = 100});
  CHECK(io_max(limits, 43, 0) == "43:0 rbps=max wbps=max riops=max wiops=100");
  CHECK(io_limits_of({}).empty());
}
