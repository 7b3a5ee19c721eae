// Segments of NodeGetInfo's topology, as ceph-csi derives them from the node's labels.
#include "corbd/csi/topology.hpp"

#include "support/catch.hpp"

using namespace corbd;
using corbd::csi::Labels;
using corbd::csi::topology_of;

TEST_CASE(
    "a domain label becomes a segment named after the lower-case driver name and the label's part after the slash") {
  const Labels node{{"topology.kubernetes.io/zone", "z1"}, {"plain", "p"}, {"other/x", "y"}};
  CHECK(topology_of("Rook-Ceph.rbd.csi.ceph.com", "topology.kubernetes.io/zone,plain", node).value() ==
        Labels{{"topology.rook-ceph.rbd.csi.ceph.com/zone", "z1"}, {"topology.rook-ceph.rbd.csi.ceph.com/plain", "p"}});
  CHECK(topology_of("rbd.csi.ceph.com", "", node).value().empty());
}

TEST_CASE(
    "domain labels that are repeated, empty or missing on the node are refused, and so is too long a driver name") {
  const Labels node{{"a/zone", "1"}, {"b/zone", "2"}, {"a/region", "3"}};
  struct Case {
    std::string driver, labels, names;
  };
  const auto [driver, labels, names] = GENERATE(values<Case>({{"d", "a/zone,a/zone", "a/zone"},
                                                              {"d", "a/zone,b/zone", "b/zone"},
                                                              {"d", "a/zone,c/rack,d/row", "'c/rack', 'd/row'"},
                                                              {"d", "a/zone,", "no label"},
                                                              {std::string(63, 'd'), "a/zone", "63"}}));
  CAPTURE(driver, labels);
  const auto made = topology_of(driver, labels, node);
  REQUIRE_FALSE(made);
  CHECK_THAT(made.error().text, ContainsSubstring(names));
}

TEST_CASE("a list of domain labels is checked before the node's labels are known") {
  CHECK(corbd::csi::check_domain_labels("d", ""));
  CHECK(corbd::csi::check_domain_labels("d", "a/zone,c/rack"));
  CHECK(corbd::csi::check_domain_labels("d", "a/zone,b/zone").error().code == errc::invalid_argument);
  CHECK(corbd::csi::check_domain_labels(std::string(63, 'd'), "a/zone").error().code == errc::invalid_argument);
}

TEST_CASE("a topology prefix of 63 bytes is accepted") {
  CHECK(topology_of(std::string(54, 'd'), "a/zone", {{"a/zone", "1"}}));
}

TEST_CASE("the labels of --topology are name=value pairs, and each name may occur once") {
  CHECK(corbd::csi::parse_labels("a/zone=z=1,b=").value() == Labels{{"a/zone", "z=1"}, {"b", ""}});
  CHECK(corbd::csi::parse_labels("").value().empty());
  const char* wrong = GENERATE("a", "=v", "a=1,,b=2", "a=1,a=2", "a=1,");
  CAPTURE(wrong);
  CHECK(corbd::csi::parse_labels(wrong).error().code == errc::invalid_argument);
}
