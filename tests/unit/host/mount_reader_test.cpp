#include "mount_reader.hpp"

#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "ground.hpp"
#include "mount_calls.hpp"

using namespace corbd;
using host::MountReader;
using test::Folder;
using test::may_mount;
namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kLong{10};

/// Whether the kernel tells all of a mount by calls.
bool has_calls() {
  const auto ids = host::list_mounts();
  const auto first = ids ? host::describe_mount(ids->front()) : ids.error();
  if (first && *first && (*first)->has_source) return true;
  WARN("skipped: Linux 6.14 describes a mount");
  return false;
}

std::vector<host::MountList::Row> rows_of(const host::MountTable& table) {
  std::vector<host::MountList::Row> all;
  for (const auto& [at, row] : table->rows()) all.push_back(row);
  return all;
}

/// A tmpfs with folders for more mounts. It takes them along.
struct Tree {
  Tree() {
    mount(folder.path(), "tmpfs");
    ::mount(nullptr, folder.path().c_str(), nullptr, MS_SHARED, nullptr);
  }
  ~Tree() { ::umount2(folder.path().c_str(), MNT_DETACH); }
  std::string path(const std::string& name) const {
    const std::string made = folder.path() + "/" + name;
    fs::create_directories(made);
    return made;
  }
  static void mount(const std::string& target, const char* options, unsigned long flags = 0) {
    if (::mount("so urce", target.c_str(), "tmpfs", flags, flags == 0 ? nullptr : options) != 0)
      throw std::runtime_error("no mount at " + target);
  }
  Folder folder;
};

}  // namespace

TEST_CASE("the kernel's calls tell of every mount what its text tells") {
  if (!may_mount() || !has_calls()) return;
  const Tree tree;
  const std::string plain = tree.path("plain"), odd = tree.path("a b\\c\td"), part = tree.path("part"),
                    slave = tree.path("slave"), no_access = tree.path("no-access");
  Tree::mount(plain, "size=1m", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME);
  Tree::mount(odd, "size=2m", MS_RDONLY | MS_STRICTATIME);
  fs::create_directories(plain + "/inner");
  REQUIRE(::mount((plain + "/inner").c_str(), part.c_str(), nullptr, MS_BIND, nullptr) == 0);
  REQUIRE(::mount(nullptr, part.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NODIRATIME, nullptr) == 0);
  fs::remove(plain + "/inner");
  REQUIRE(::mount(plain.c_str(), slave.c_str(), nullptr, MS_BIND, nullptr) == 0);
  REQUIRE(::mount(nullptr, slave.c_str(), nullptr, MS_SLAVE, nullptr) == 0);
  REQUIRE(::mount("/dev/null", odd.c_str(), nullptr, MS_BIND, nullptr) != 0);
  REQUIRE(::mount(nullptr, plain.c_str(), nullptr, MS_PRIVATE, nullptr) == 0);
  Tree::mount(plain, "size=3m", MS_SYNCHRONOUS);
  MountReader by_calls(kLong), by_text(kLong, MountReader::Way::text);
  const auto told = rows_of(by_calls.read().value()), written = rows_of(by_text.read().value());
  REQUIRE(told.size() == written.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    INFO(written[i].mount.target << " " << written[i].mount.source << " " << written[i].mount.options << " "
                                 << told[i].mount.target << " " << told[i].mount.source << " " << told[i].mount.options
                                 << " " << told[i].kin.parent << " " << written[i].kin.parent << " "
                                 << told[i].mount.root << " " << written[i].mount.root);
    CHECK(told[i] == written[i]);
  }
  CHECK(by_calls.described() >= told.size());
}

TEST_CASE("the 1,000th mount of a node costs the kernel's word on one mount, as the 10th does") {
  if (!may_mount() || !has_calls()) return;
  const Tree tree;
  MountReader table(kLong, MountReader::Way::newest, kLong);
  REQUIRE(table.read());
  for (int number = 1; number <= 1000; ++number) {
    const std::string target = tree.path(std::to_string(number));
    const auto before = table.described();
    Tree::mount(target, "size=4k", MS_NODEV);
    REQUIRE(table.read().value()->at(target).size() == 1);
    if (number == 10 || number == 1000) CHECK(table.described() == before + 1);
  }
  const auto before = table.described();
  REQUIRE(::umount2(tree.path("7").c_str(), 0) == 0);
  CHECK(table.read().value()->at(tree.path("7")).empty());
  CHECK(table.described() == before);
}

TEST_CASE("a mount that was moved or remounted shows at once") {
  if (!may_mount()) return;
  const Tree tree;
  REQUIRE(::mount(nullptr, tree.folder.path().c_str(), nullptr, MS_PRIVATE, nullptr) == 0);
  const std::string from = tree.path("from"), to = tree.path("to");
  Tree::mount(from, "size=4k", MS_NODEV);
  MountReader table(kLong, GENERATE(MountReader::Way::newest, MountReader::Way::text), kLong);
  CHECK(table.read().value()->at(from).size() == 1);
  REQUIRE(::mount(from.c_str(), to.c_str(), nullptr, MS_MOVE, nullptr) == 0);
  CHECK(table.read().value()->at(from).empty());
  CHECK(table.read().value()->at(to).size() == 1);
  REQUIRE(::mount(nullptr, to.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0);
  CHECK(table.read().value()->at(to).begin()->second->read_only);
}

TEST_CASE("a mount that was moved while another was made shows once the table is a second old") {
  if (!may_mount()) return;
  const Tree tree;
  REQUIRE(::mount(nullptr, tree.folder.path().c_str(), nullptr, MS_PRIVATE, nullptr) == 0);
  const std::string from = tree.path("from"), to = tree.path("to"), other = tree.path("other");
  Tree::mount(from, "size=4k", MS_NODEV);
  MountReader table(std::chrono::hours(1));
  REQUIRE(table.read());
  REQUIRE(::mount(from.c_str(), to.c_str(), nullptr, MS_MOVE, nullptr) == 0);
  Tree::mount(other, "size=4k", MS_NODEV);
  CHECK(table.read().value()->at(other).size() == 1);
  for (int tries = 0; tries < 1000 && table.read().value()->at(to).empty(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(table.read().value()->at(to).size() == 1);
  CHECK(table.read().value()->at(from).empty());
}
