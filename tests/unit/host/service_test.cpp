#include "corbd/host/service.hpp"

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

TEST_CASE("a process belongs to this service only if it is known to be in the same control group") {
  const test::Folder proc;
  const auto put = [&](int pid, const std::string& group) {
    const std::string folder = proc.path() + "/" + std::to_string(pid);
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/cgroup") << "0::" << group << "\n";
  };
  put(1, "/system.slice/corbd.service");
  put(2, "/system.slice/corbd.service");
  put(3, "/user.slice/user-0.slice/session-1.scope");
  CHECK(host::same_group(proc.path(), 1, 2));
  CHECK_FALSE(host::same_group(proc.path(), 1, 3));
  CHECK_FALSE(host::same_group(proc.path(), 1, 4));
  CHECK_FALSE(host::same_group(proc.path(), 4, 5));
}
