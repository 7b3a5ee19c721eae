#include "corbd/cephcsi/claim.hpp"

#include "support/catch.hpp"

using namespace corbd::cephcsi;

TEST_CASE("a claim is known by the names that a provisioner gives") {
  const PvcRef claim = pvc_of({{"csi.storage.k8s.io/pvc/name", "data"},
                               {"csi.storage.k8s.io/pvc/namespace", "shop"},
                               {"csi.storage.k8s.io/pv/name", "pvc-1"},
                               {"pool", "rbd"}});
  CHECK(claim == PvcRef{"data", "shop", "pvc-1"});
  CHECK_FALSE(claim.empty());
  CHECK(pvc_of({{"pool", "rbd"}}).empty());
}

TEST_CASE("a claim name that Kubernetes would refuse is ignored, as any client may write the image's metadata") {
  for (const std::string& name : {std::string("\xff"), std::string("a\nb"), std::string(254, 'a'), std::string("A")})
    CHECK(pvc_of({{"csi.storage.k8s.io/pvc/name", name}}).empty());
  CHECK(pvc_of({{"csi.storage.k8s.io/pvc/name", std::string(253, 'a')}}).name.size() == 253);
  CHECK(pod_of({{"csi.storage.k8s.io/pod.name", "\"x"}, {"csi.storage.k8s.io/pod.namespace", "shop"}}).empty());
}

TEST_CASE("a pod is known where kubelet tells of it") {
  CHECK(pod_of({{"csi.storage.k8s.io/pod.name", "db-0"}, {"csi.storage.k8s.io/pod.namespace", "shop"}}) == "shop/db-0");
  CHECK(pod_of({{"csi.storage.k8s.io/pod.namespace", "shop"}}).empty());
}
