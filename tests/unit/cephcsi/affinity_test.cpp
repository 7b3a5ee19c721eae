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
  const auto location = [&](cephcsi::Affinity wished) { return cephcsi::read_policy(wished, labels)->location; };
  CHECK(location({true, false, zone, false, host, ""}) == "zone:b");
  CHECK(location({true, false, {}, true, host, ""}) == "host:a");
  CHECK(location({true, false, {}, false, host, ""}).empty());
  CHECK(location({false, false, zone, true, host, "rack:r"}).empty());
  CHECK(location({true, false, zone, true, host, "rack:r"}) == "rack:r");
  CHECK(cephcsi::read_policy({true, false, {"rack"}, false, {}, ""}, labels).error().code == errc::failed_precondition);
  CHECK(cephcsi::read_policy({true, false, zone, false, {}, ""}, Error{errc::unavailable, "not known"}).error().code ==
        errc::unavailable);
}

TEST_CASE("a cluster that balances reads needs no location of the node") {
  const Error unknown{errc::unavailable, "not known"};
  CHECK(cephcsi::read_policy({true, true, {"zone"}, true, {}, ""}, unknown).value() == cephcsi::ReadPolicy{true, ""});
  CHECK(cephcsi::read_policy({false, true, {}, false, {}, ""}, unknown).value() == cephcsi::ReadPolicy());
}

TEST_CASE("the kernel's client gets the cluster's policy unless its options have one") {
  CHECK(cephcsi::with_policy("", {false, "host:a"}) == "read_from_replica=localize,crush_location=host:a");
  CHECK(cephcsi::with_policy("noshare", {true, ""}) == "noshare,read_from_replica=balance");
  CHECK(cephcsi::with_policy("read_from_replica=balance", {false, "host:a"}) == "read_from_replica=balance");
  CHECK(cephcsi::with_policy("noshare", {}) == "noshare");
}

TEST_CASE("a connection gets the cluster's policy unless its options have one") {
  using Config = std::map<std::string, std::string>;
  const std::string policy = "rbd_read_from_replica_policy";
  const Config balance{{policy, "balance"}};
  CHECK(cephcsi::with_policy(Config(), {true, ""}) == balance);
  CHECK(cephcsi::with_policy(balance, {false, "host:a"}) == balance);
  CHECK(cephcsi::with_policy(Config(), {}).empty());
  CHECK(cephcsi::with_policy(Config(), {false, "host:a|zone:b"}) ==
        Config{{policy, "localize"}, {"crush_location", "host=a zone=b"}});
}

TEST_CASE("a volume that asks for near reads itself gets the node's place") {
  using Config = std::map<std::string, std::string>;
  const Config near{{"rbd_read_from_replica_policy", "localize"}};
  CHECK(cephcsi::with_policy(near, {false, "host:a"}).at("crush_location") == "host=a");
  CHECK(cephcsi::with_policy(near, {true, ""}) == near);
}
