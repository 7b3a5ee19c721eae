#include "corbd/cephcsi/affinity.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("a node's labels become CRUSH locations: hostname is host, dots are hyphens, in the order of the types") {
  const std::map<std::string, std::string> labels{{"topology.kubernetes.io/zone", "eu.west.1"},
                                                  {"kubernetes.io/hostname", "node.example"},
                                                  {"topology.kubernetes.io/region", ""},
                                                  {"other", "x"}};
  CHECK(cephcsi::crush_location(labels, {"topology.kubernetes.io/zone", "kubernetes.io/hostname",
                                         "topology.kubernetes.io/region", "absent"}) ==
        "host:node-example|zone:eu-west-1");
  CHECK(cephcsi::crush_location(labels, {}).empty());
}

TEST_CASE("a location given by hand is a list of type:value between bars") {
  for (const std::string good : {"host:a", "host:node-1|zone:z1", "a.b:c_d"})
    CHECK(cephcsi::check_crush_location(good));
  for (const std::string bad : {"", "host", "host:", ":a", "host:a,zone:b", "host:a|", "host:a b", "host=a"})
    CHECK(cephcsi::check_crush_location(bad).error().code == errc::invalid_argument);
}

TEST_CASE("read affinity needs config.json to enable it and a known location of the node") {
  const std::map<std::string, std::string> labels{{"kubernetes.io/hostname", "a"},
                                                  {"topology.kubernetes.io/zone", "b"}};
  const std::vector<std::string> host{"kubernetes.io/hostname"}, zone{"topology.kubernetes.io/zone"};
  CHECK(cephcsi::location_for({true, zone, false, host, ""}, labels).value() == "zone:b");
  CHECK(cephcsi::location_for({true, {}, true, host, ""}, labels).value() == "host:a");
  CHECK(cephcsi::location_for({true, {}, false, host, ""}, labels)->empty());
  CHECK(cephcsi::location_for({false, zone, true, host, "rack:r"}, labels)->empty());
  CHECK(cephcsi::location_for({true, zone, true, host, "rack:r"}, labels).value() == "rack:r");
  CHECK(cephcsi::location_for({true, {"rack"}, false, {}, ""}, labels).error().code == errc::failed_precondition);
  CHECK(cephcsi::location_for({true, zone, false, {}, ""}, Error{errc::unavailable, "not known"}).error().code ==
        errc::unavailable);
}

TEST_CASE("options that say where to read are left as they are") {
  CHECK(cephcsi::with_kernel_affinity("", "host:a") == "read_from_replica=localize,crush_location=host:a");
  CHECK(cephcsi::with_kernel_affinity("read_from_replica=balance", "host:a") == "read_from_replica=balance");
  CHECK(cephcsi::with_kernel_affinity("noshare", "") == "noshare");
  const std::map<std::string, std::string> balance{{"rbd_read_from_replica_policy", "balance"}};
  CHECK(cephcsi::with_affinity(balance, "host:a") == balance);
  CHECK(cephcsi::with_affinity({}, "").empty());
  CHECK(cephcsi::with_affinity({}, "host:a|zone:b").at("crush_location") == "host=a zone=b");
}
