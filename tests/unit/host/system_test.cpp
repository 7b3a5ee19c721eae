// Whether there is a systemd to ask, by a /proc of the test's own.
#include "corbd/host/system.hpp"

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
namespace fs = std::filesystem;

TEST_CASE("an init other than systemd is named only if the host's processes are visible") {
  constexpr const char* kHosts = "pid:[4026531836]";
  const auto found = [](const std::string& space, const std::string& init) {
    const test::Folder proc;
    fs::create_directories(proc.path() + "/self/ns");
    fs::create_directories(proc.path() + "/1");
    fs::create_symlink(space, proc.path() + "/self/ns/pid");
    std::ofstream(proc.path() + "/1/comm") << init << "\n";
    return host::other_init(proc.path());
  };
  REQUIRE(found(kHosts, "machined"));
  CHECK_THAT(*found(kHosts, "machined"), ContainsSubstring("the host's init is machined, not systemd"));
  CHECK_FALSE(found(kHosts, "systemd"));
  CHECK_FALSE(found("pid:[4026532001]", "corbd"));
  CHECK_FALSE(found(kHosts, ""));
  const test::Folder nothing;
  CHECK_FALSE(host::other_init(nothing.path()));
}
