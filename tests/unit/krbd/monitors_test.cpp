#include "monitors.hpp"

#include <map>

#include "support/catch.hpp"

using namespace corbd;
using krbd::with_addresses;
using Texts = std::vector<std::string>;

namespace {

result<Texts> look_up(const std::string& host) {
  const std::map<std::string, Texts> hosts{{"mon.a", {"10.0.0.1"}}, {"mon-b", {"10.0.0.2", "fd00::2"}}};
  const auto found = hosts.find(host);
  if (found == hosts.end()) return Error{errc::unavailable, "Name or service not known"};
  return found->second;
}

}  // namespace

TEST_CASE("a monitor's name becomes its addresses, with its port and protocol", "[failure:242]") {
  CHECK(*with_addresses({"mon.a:6789"}, look_up) == Texts{"10.0.0.1:6789"});
  CHECK(*with_addresses({"mon-b"}, look_up) == Texts{"10.0.0.2", "[fd00::2]"});
  CHECK(*with_addresses({"[v2:mon-b:3300/0,v1:mon.a:6789/0]"}, look_up) ==
        Texts{"v2:10.0.0.2:3300/0", "v2:[fd00::2]:3300/0", "v1:10.0.0.1:6789/0"});
}

TEST_CASE("an address is nobody's name") {
  const auto nobody = [](const std::string& host) -> result<Texts> {
    FAIL("asked for " << host);
    return Texts();
  };
  const Texts addresses{"10.0.0.1:6789", "10.0.0.1", "[fd00::1]:6789", "fd00::1", "v2:[fd00::1]:3300/0"};
  CHECK(*with_addresses(addresses, nobody) == addresses);
}

TEST_CASE("a name that does not resolve is left out, and without any address the error names it and the resolver",
          "[failure:242]") {
  CHECK(*with_addresses({"mon.c:6789", "mon.a:6789"}, look_up) == Texts{"10.0.0.1:6789"});
  const auto refused = with_addresses({"mon.c:6789"}, look_up);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unavailable);
  CHECK_THAT(refused.error().text,
             ContainsSubstring("mon.c: Name or service not known") && ContainsSubstring("ClusterFirstWithHostNet"));
}

TEST_CASE("this host's own name is looked up in user space") {
  const auto found = krbd::look_up_host("localhost");
  if (found) CHECK((found->front() == "127.0.0.1" || found->front() == "::1"));
  CHECK_FALSE(krbd::look_up_host("no-such-host.invalid"));
}
