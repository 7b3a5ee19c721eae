// Ceph's own configuration and keyring.
#include "corbd/rbd/ceph_conf.hpp"

#include <filesystem>
#include <fstream>

#include "corbd/core/ini.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using rbd::parse_ceph_conf;
using rbd::parse_keyring;
using Texts = std::vector<std::string>;

namespace {

const std::string kFsid = "fsid = 0b5aa4e1-1\n";

Texts monitors_of(const std::string& line) { return parse_ceph_conf("[global]\n" + kFsid + line + "\n")->monitors; }

}  // namespace

TEST_CASE("a cluster is found in what ceph-deploy, cephadm and people write") {
  const auto conf = parse_ceph_conf(
      "# minimal ceph.conf\n[global]\n\tfsid = 0b5aa4e1-1\n\tmon_host = [v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] "
      "[v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]\n\n[mon.a]\nmon_host = wrong\n[osd]\nfsid = wrong\n");
  REQUIRE(conf);
  CHECK(conf->fsid == "0b5aa4e1-1");
  CHECK(conf->monitors == Texts{"[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", "[v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]"});
}

TEST_CASE("monitors may stand between commas, spaces and semicolons, and have IPv6 addresses") {
  CHECK(monitors_of("mon host = a:6789, b , c;d") == Texts{"a:6789", "b", "c"});
  CHECK(monitors_of("mon-host = \"a;b c\"") == Texts{"a", "b", "c"});
  CHECK(monitors_of("mon  host=[2001:db8::1]:6789,[2001:db8::2]") == Texts{"[2001:db8::1]:6789", "[2001:db8::2]"});
  CHECK(monitors_of("mon_host = a, \\\n  b ; old ones: c") == Texts{"a", "b"});
  CHECK(monitors_of("mon_host = a # b") == Texts{"a"});
  CHECK(monitors_of("mon_host = a\r") == Texts{"a"});
}

TEST_CASE("the error for an incomplete ceph.conf names what is missing, and for a malformed one the line") {
  CHECK_THAT(parse_ceph_conf("[global]\nmon_host = a\n").error().text, ContainsSubstring("no fsid"));
  CHECK_THAT(parse_ceph_conf("[global]\n" + kFsid).error().text, ContainsSubstring("no mon_host"));
  CHECK_THAT(parse_ceph_conf("").error().text, ContainsSubstring("no fsid"));
  CHECK_THAT(parse_ceph_conf("[global]\nthis is none\n").error().text, ContainsSubstring("line 2"));
  CHECK_THAT(parse_ceph_conf("[global\n").error().text, ContainsSubstring("line 1"));
}

TEST_CASE("an option is taken from the user's section before [client], and from that before [global]") {
  const auto of = [](const std::string& text) { return option_for(text, "rbd_cache", "app")->value_or("(none)"); };
  const std::string global = "[global]\nrbd cache = all\n", clients = "[client]\nrbd \t cache = clients\n";
  const std::string own = "[client.app]\nrbd_cache = own ; why\n", other = "[client.other]\nrbd_cache = other\n";
  CHECK(of(own + clients + global + other) == "own");
  CHECK(of(global + clients + other) == "clients");
  CHECK(of(other + global) == "all");
  CHECK(of(other + "[osd]\nrbd_cache = osd\n[client.app]\nrbd_cache_size = 1\n") == "(none)");
  CHECK(of(own + "[client.app]\nrbd_cache = later\n") == "later");
  CHECK(of("") == "(none)");
  // Ceph does not know these.
  CHECK(of("[global]\nrbd-cache = no\n[ client ]\nrbd_cache = no\n[client.app]\nrbd__cache = no\n") == "(none)");
  CHECK_FALSE(option_for("[global\n", "rbd_cache", "app"));
}

TEST_CASE("a key is its user's, and an error names users but no key") {
  const std::string ring =
      "[client.admin]\n\tkey = AQsecret==\n\tcaps mon = \"allow *\"\n[client.app]\n key=AQother==\n";
  CHECK(parse_keyring(ring, "admin")->reveal() == "AQsecret==");
  CHECK(parse_keyring(ring, "app")->reveal() == "AQother==");
  const auto none = parse_keyring(ring, "nobody");
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::not_found);
  CHECK_THAT(none.error().text, ContainsSubstring("client.admin, client.app"));
  CHECK(none.error().text.find("AQ") == std::string::npos);
  CHECK(parse_keyring("AQjustakey==\n", "admin").error().text.find("AQ") == std::string::npos);
}

TEST_CASE("without config.json the cluster is that of the Ceph configuration, by its fsid") {
  const test::Folder folder;
  const std::string conf = folder.path() + "/ceph.conf";
  std::ofstream(conf) << "[global]\n" << kFsid << "mon_host = a\n";
  CHECK(rbd::find_cluster(folder.path(), conf, "0b5aa4e1-1")->monitors == Texts{"a"});
  CHECK(rbd::find_cluster(folder.path(), conf, "other").error().code == errc::not_found);
  CHECK(rbd::find_cluster(folder.path(), "", "0b5aa4e1-1").error().code == errc::failed_precondition);
  CHECK(rbd::find_cluster(folder.path(), folder.path() + "/none", "x").error().code == errc::failed_precondition);
  std::ofstream(folder.path() + "/config.json") << R"([{"clusterID":"other","monitors":["b"]}])";
  CHECK(rbd::find_cluster(folder.path(), conf, "other")->monitors == Texts{"b"});
  CHECK(rbd::find_cluster(folder.path(), conf, "0b5aa4e1-1").error().code == errc::not_found);
}

TEST_CASE("a keyring is read from where it is said to be, and its absence names the way out") {
  const test::Folder folder;
  std::ofstream(folder.path() + "/ring") << "[client.app]\nkey = AQ==\n";
  CHECK(rbd::read_keyring(folder.path() + "/ring", "app"));
  CHECK_THAT(rbd::read_keyring(folder.path() + "/none", "app").error().text, ContainsSubstring("--keyring"));
}

TEST_CASE("an option of ceph.conf counts in the sections global and client, however its name is spelled") {
  CHECK(rbd::client_option("[global]\nosd min split replica read size = 4096\n", "osd_min_split_replica_read_size") ==
        "4096");
  CHECK(rbd::client_option("[client]\nosd_min_split_replica_read_size=0\n", "osd_min_split_replica_read_size") == "0");
  CHECK(rbd::client_option("[osd]\nosd_min_split_replica_read_size=1\n", "osd_min_split_replica_read_size").empty());
}
