// kubelet's folders, and the names that mountinfo has for them.
#include "node_files.hpp"

#include <filesystem>

#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"

using namespace corbd;
namespace fs = std::filesystem;

namespace {

/// kubelet's folder with pods and plugins, of which either may be a link to another disk.
struct Kubelet {
  explicit Kubelet(bool moved) {
    fs::create_directories(root);
    for (const std::string name : {"/pods", "/plugins"}) {
      const std::string real = (moved ? disk : root) + name;
      fs::create_directories(real + "/a");
      if (moved) fs::create_directory_symlink(real, root + name);
      fs::create_directory_symlink(folder.path(), real + "/link");
    }
    options.kubelet_dir = root;
  }
  errc check(const std::string& path) {
    const auto checked = test::Started<result<>>(loop.io, files().check_path(files().real_path(path), true)).get();
    return checked ? errc::ok : checked.error().code;
  }
  agent::NodeFiles& files() {
    if (!made) made.emplace(options, pool);
    return *made;
  }
  test::Folder folder;
  std::string base = fs::canonical(folder.path()), root = base + "/kubelet", disk = base + "/disk";
  agent::Options options;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  std::optional<agent::NodeFiles> made;
};

}  // namespace

TEST_CASE("kubelet's folders pods and plugins may be links, which have one name from the start on", "[rule:14]") {
  Kubelet kubelet(true);
  for (const std::string name : {"/pods", "/plugins"}) {
    CHECK(kubelet.files().real_path(kubelet.root + name + "//a/") == kubelet.disk + name + "/a");
    CHECK(kubelet.files().real_path(kubelet.disk + name + "/a") == kubelet.disk + name + "/a");
    CHECK(kubelet.check(kubelet.root + name + "/a") == errc::ok);
    CHECK(kubelet.check(kubelet.root + name + "/link") == errc::invalid_argument);
    CHECK(kubelet.check(kubelet.root + name + "/a/../../..") == errc::invalid_argument);
  }
  CHECK(kubelet.check(kubelet.disk) == errc::invalid_argument);
  fs::remove(kubelet.root + "/pods");
  fs::create_directory_symlink(kubelet.base, kubelet.root + "/pods");
  CHECK(kubelet.files().real_path(kubelet.root + "/pods/a") == kubelet.disk + "/pods/a");
}

TEST_CASE("any other link below kubelet's folder is refused") {
  Kubelet kubelet(false);
  CHECK(kubelet.check(kubelet.root + "/pods/a") == errc::ok);
  CHECK(kubelet.check(kubelet.root + "/pods/link") == errc::invalid_argument);
  fs::create_directory_symlink(kubelet.base, kubelet.root + "/other");
  CHECK(kubelet.check(kubelet.root + "/other/kubelet") == errc::invalid_argument);
}
