// A file that several threads write.
#include "latest_file.hpp"

#include <future>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

TEST_CASE("a file has the text that was set last, whichever of its writers comes last") {
  const test::Folder folder;
  const std::string path = folder.path() + "/labels";
  agent::LatestFile file(path);
  file.set("old");
  file.set("new");
  CHECK(file.write());
  // The writer of the old text is late.
  CHECK(file.write());
  CHECK(read_file(path, 100).value() == "new");
}

TEST_CASE("writers of one file do not disturb each other") {
  const test::Folder folder;
  const std::string path = folder.path() + "/labels";
  agent::LatestFile file(path);
  const auto set_and_write = [&](const std::string& text) {
    bool all = true;
    for (int i = 0; i < 50; ++i) {
      file.set(text);
      all = file.write().has_value() && all;
    }
    return all;
  };
  auto other = std::async(std::launch::async, set_and_write, std::string(3000, 'b'));
  CHECK(set_and_write("a"));
  CHECK(other.get());
  file.set("last");
  CHECK(file.write());
  CHECK(read_file(path, 4096).value() == "last");
}
