#include "corbd/core/display.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;

TEST_CASE("a duration is shown in its two largest units") {
  CHECK(duration_text(0ms) == "0s");
  CHECK(duration_text(850ms) == "850ms");
  CHECK(duration_text(1999ms) == "1s");
  CHECK(duration_text(59s) == "59s");
  CHECK(duration_text(60s) == "1m");
  CHECK(duration_text(200s) == "3m20s");
  CHECK(duration_text(5h + 12min + 30s) == "5h12m");
  CHECK(duration_text(99h) == "4d3h");
}

TEST_CASE("a time in the future, as after a clock was set back, shows as 0s") { CHECK(duration_text(-5s) == "0s"); }

TEST_CASE("a size is shown in its largest unit") {
  CHECK(size_text(0) == "0 B");
  CHECK(size_text(512) == "512 B");
  CHECK(size_text(1ULL << 30) == "1 GiB");
  CHECK(size_text(3ULL << 39) == "1.5 TiB");
}

TEST_CASE("a time is shown in UTC") { CHECK(time_text(1769860800999) == "2026-01-31T12:00:00Z"); }

TEST_CASE("control characters do not reach the terminal") {
  CHECK(for_terminal("a\x1b[2Jb\n\x7f") == "a?[2Jb??");
  CHECK(for_terminal("a\xC2\x9B"
                     "2J") == "a?2J");
  CHECK(for_terminal("K\xC3\xA4se \xC2\xA0") == "K\xC3\xA4se \xC2\xA0");
}

TEST_CASE("an empty cell shows <none>") {
  CHECK(cell("") == "<none>");
  CHECK(cell("x") == "x");
}

TEST_CASE("columns are as wide as their widest cell, and no row ends in spaces") {
  CHECK(table({{"ID", "STATE"}, {"longer", "x"}, {"y", ""}}) ==
        "ID       STATE\n"
        "longer   x\n"
        "y\n");
}

TEST_CASE("a character of several bytes is one column wide") {
  CHECK(table({{"\xC3\xA4", "x"}, {"b", "y"}}) == "\xC3\xA4   x\nb   y\n");
}
