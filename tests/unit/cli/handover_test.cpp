#include "handover.hpp"
#include "support/catch.hpp"

using namespace corbd::cli;
using namespace std::string_literals;

TEST_CASE("the next agent gets the present agent's arguments, with --handover exactly once") {
  const std::vector<std::string> next{"/usr/bin/corbd", "run", "--standalone", "--handover"};
  CHECK(next_arguments("/usr/bin/corbd\0run\0--standalone\0"s) == next);
  CHECK(next_arguments("/usr/bin/corbd\0run\0--standalone\0--handover\0"s) == next);
  CHECK(next_arguments("corbd\0run\0--ceph-conf\0\0"s) ==
        std::vector<std::string>{"corbd", "run", "--ceph-conf", "", "--handover"});
}

TEST_CASE("a process that is not `corbd run` yields no arguments for a next agent") {
  for (const auto& line : {""s, "corbd\0"s, "cephcsi\0--nodeserver=true\0"s, "corbd\0alive\0"s})
    CHECK(next_arguments(line).empty());
}
