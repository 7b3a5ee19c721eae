#include "writer_mark.hpp"

#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd::rbd;
using corbd::errc;
using corbd::Error;
using corbd::result;
using corbd::Secret;
using corbd::task;

namespace {

/// A mark whose removal fails so often before it succeeds.
struct Stubborn {
  explicit Stubborn(int so_often, bool is_pointless = false) : fails(so_often), pointless(is_pointless) {}
  corbd::test::Loop loop;
  const int fails;
  const bool pointless;
  int tries = 0;
  task<result<>> remove() {
    if (++tries > fails) co_return result<>();
    co_return Error{errc::unavailable, "the OSD does not want to"};
  }
  result<> end() {
    return loop.run(persist(loop.control(), loop.clock, [this] { return remove(); }, [this] { return pointless; }));
  }
};

}  // namespace

TEST_CASE("a mark names its writer") { CHECK(writer_in("5e2b 10.0.0.7:0/412 3", "5e2b") == "10.0.0.7:0/412"); }

TEST_CASE("a mark that a clone inherited from its parent names nobody") {
  CHECK(writer_in("5e2b 10.0.0.7:0/412 3", "5e2b7").empty());
  CHECK(writer_in("5e2b7 10.0.0.7:0/412 3", "5e2b").empty());
}

TEST_CASE("an image without a mark names nobody") { CHECK(writer_in("", "5e2b").empty()); }

TEST_CASE("a malformed mark names nobody") { CHECK(writer_in("5e2b somebody", "5e2b").empty()); }

TEST_CASE("a mark that would match every client of a host names nobody", "[failure:143]") {
  for (const char* address : {"10.0.0.7:0/0", "10.0.0.7", "10.0.0.7:0", "10.0.0.7:0/4294967296"})
    CHECK(writer_in("5e2b " + std::string(address) + " 1", "5e2b").empty());
}

TEST_CASE("a mark's signature covers its text with the key of its volume", "[failure:143]") {
  const Secret key("key"), other("another");
  const std::string mark = signed_mark("5e2b 10.0.0.7:0/412 3", key);
  CHECK(writer_in(mark, "5e2b") == "10.0.0.7:0/412");
  CHECK(is_signed(mark, key));
  CHECK_FALSE(is_signed(mark, other));
  std::string changed = mark;
  changed[changed.find("412")] = '5';
  CHECK_FALSE(is_signed(changed, key));
  for (const char* forged : {"5e2b 10.0.0.7:0/412 3", "5e2b 10.0.0.7:0/412 3 ", "", " "})
    CHECK_FALSE(is_signed(forged, key));
}

TEST_CASE("a mark that is not removed at once is tried again, and its image is open meanwhile", "[failure:143]") {
  Stubborn mark(3);
  CHECK(mark.end());
  CHECK(mark.tries == 4);
}

TEST_CASE("a mark that cannot be removed holds an image open for a minute, and none of a client that is cut off") {
  Stubborn mark(1000);
  const auto begin = mark.loop.clock.now();
  CHECK_FALSE(mark.end());
  CHECK(mark.loop.clock.now() - begin == std::chrono::seconds(60));
  Stubborn refused(1000, true);
  CHECK_FALSE(refused.end());
  CHECK(refused.tries == 1);
}
