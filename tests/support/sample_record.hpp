// A record with a bit of everything, for the tests of its codec and of its store.
#pragma once

#include "corbd/plan/record.hpp"

namespace corbd::test {

inline plan::Record sample_record() {
  plan::Record record;
  record.volume_id = "image-1";
  record.names.driver = "rbd.csi.ceph.com";
  record.source = {"cluster", "pool", "", "image-1", ""};
  record.user = "node";
  record.key = {"5d8c1c34-0000-4000-8000-000000000000", 2, "", "10a6b8f0e1d2", 0};
  record.device.size = 18446744073709551104ull;
  record.device.exclusive_lock = true;
  record.device.boot_id = "b0071d00-0000-4000-8000-000000000000";
  record.device.index = 3;
  record.stagings.push_back({"/var/lib/kubelet/x/globalmount", {false, "ext4", "noatime", false, false}, true});
  record.publishes.push_back({"/var/lib/kubelet/pods/p/mount", "/var/lib/kubelet/x/globalmount", true});
  return record;
}

}  // namespace corbd::test
