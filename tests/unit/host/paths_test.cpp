#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/host/host.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using host::busy;
using host::check_path;
namespace fs = std::filesystem;

namespace {

struct Root {
  Root() {
    fs::create_directories(root + "/pods/a");
    fs::create_directories(folder.path() + "/outside");
    fs::create_symlink("a", root + "/pods/link");
    fs::create_symlink(folder.path() + "/outside", root + "/pods/out");
    fs::create_symlink("nowhere", root + "/pods/dangling");
  }
  errc code(const std::string& path, bool must_exist) {
    const auto checked = check_path(root, path, must_exist);
    return checked ? errc::ok : checked.error().code;
  }
  test::Folder folder;
  std::string root = folder.path() + "/kubelet";
};

}  // namespace

TEST_CASE("a path below the root is accepted") {
  Root root;
  CHECK(root.code(root.root + "/pods/a", true) == errc::ok);
  CHECK(root.code(root.root + "/pods/a/", true) == errc::ok);
}

TEST_CASE("a missing last component is accepted unless it must exist") {
  Root root;
  CHECK(root.code(root.root + "/pods/a/mount", false) == errc::ok);
  CHECK(root.code(root.root + "/new", false) == errc::ok);
  CHECK(root.code(root.root + "/pods/a/mount", true) == errc::not_found);
}

TEST_CASE("a missing parent is not found") {
  Root root;
  CHECK(root.code(root.root + "/pods/b/mount", false) == errc::not_found);
}

TEST_CASE("the error for a missing parent names the parent, not the target") {
  Root root;
  const auto checked = check_path(root.root, root.root + "/pods/b/mount", false);
  REQUIRE_FALSE(checked);
  CHECK_THAT(checked.error().text, ContainsSubstring("/pods/b does not exist, but must hold"));
}

TEST_CASE("a path is normalised to one spelling, which begins with the real name of the root") {
  for (const auto& [given, plain] :
       {std::pair("/a//b/", "/a/b"), std::pair("/a/./b/.", "/a/b"), std::pair("//", "/"), std::pair("/", "/"),
        std::pair("a/b", "a/b"), std::pair("", ""), std::pair("/a/../b", "/a/../b"), std::pair("/a/.b", "/a/.b")})
    CHECK(host::plain_path(given) == plain);
  CHECK(host::real_path("/var/kubelet//pods/", "/var/kubelet/", "/data/k") == "/data/k/pods");
  CHECK(host::real_path("/var/kubelet", "/var/kubelet", "/data/k") == "/data/k");
  CHECK(host::real_path("/var/kubelet2/pods", "/var/kubelet", "/data/k") == "/var/kubelet2/pods");
  CHECK(host::real_path("/data/k/pods", "/var/kubelet", "/data/k") == "/data/k/pods");
}

TEST_CASE("a symbolic link anywhere in a path is refused", "[rule:14]") {
  Root root;
  for (const auto* path : {"/pods/link", "/pods/link/x", "/pods/out", "/pods/out/x", "/pods/dangling"}) {
    CHECK(root.code(root.root + path, false) == errc::invalid_argument);
    CHECK(root.code(root.root + path, true) == errc::invalid_argument);
  }
}

TEST_CASE("a path with two dots is refused, even within the root") {
  Root root;
  for (const auto* path : {"/pods/../../outside", "/pods/a/..", "/pods/a/../a", "/.."})
    CHECK(root.code(root.root + path, false) == errc::invalid_argument);
}

TEST_CASE("a path outside the root is refused", "[rule:14]") {
  Root root;
  for (const std::string& path : {root.folder.path() + "/outside", root.root, root.root + "/", root.root + "x",
                                  std::string("pods/a"), std::string(), std::string("/")})
    CHECK(root.code(path, false) == errc::invalid_argument);
}

TEST_CASE("a file in the middle of a path is refused") {
  Root root;
  CHECK(Fd(::open((root.root + "/file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)));
  CHECK(root.code(root.root + "/file/x", false) == errc::invalid_argument);
}

TEST_CASE("a root that is itself behind a link is followed") {
  Root root;
  const std::string alias = root.folder.path() + "/alias";
  fs::create_symlink("kubelet", alias);
  CHECK(check_path(alias, alias + "/pods/a", true));
}

TEST_CASE("a busy file is busy while someone holds it") {
  test::Folder folder;
  const std::string path = folder.path() + "/a.busy";
  Fd holder(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  CHECK(!busy(path));
  REQUIRE(::flock(holder.get(), LOCK_EX) == 0);
  CHECK(busy(path));
  holder.reset();
  CHECK(!busy(path));
}

TEST_CASE("a busy file that does not exist is not busy and is not made") {
  test::Folder folder;
  CHECK(!busy(folder.path() + "/a.busy"));
  CHECK(!fs::exists(folder.path() + "/a.busy"));
}
