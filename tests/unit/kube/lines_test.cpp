#include "wire.hpp"

#include <vector>

#include "support/catch.hpp"

using namespace corbd;

namespace {

std::vector<std::string> lines(const std::vector<std::string>& pieces) {
  kube::Lines reader(16);
  std::vector<std::string> all;
  for (const auto& piece : pieces)
    if (!reader.feed(piece, [&](std::string_view line) {
          all.emplace_back(line);
          return true;
        }))
      all.emplace_back("too long");
  return all;
}

}  // namespace

TEST_CASE("lines are put together from any pieces") {
  const std::vector<std::string> expected{"ab", "cd"};
  CHECK(lines({"ab\ncd\n"}) == expected);
  CHECK(lines({"a", "b\n", "\n", "c", "d", "\n", "ef"}) == expected);
  CHECK(lines({"ab\nc", "d\ne"}) == expected);
}

TEST_CASE("a line beyond the limit is refused, in one piece or in many") {
  CHECK(lines({std::string(17, 'a')}) == std::vector<std::string>{"too long"});
  CHECK(lines({std::string(10, 'a'), std::string(10, 'a') + "\n"}) == std::vector<std::string>{"too long"});
  CHECK(lines({std::string(16, 'a') + "\n"}) == std::vector<std::string>{std::string(16, 'a')});
}
