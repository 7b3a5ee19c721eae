// What is at a path of this machine, who uses it, and which device is under it.
#include "corbd/manager/node.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "corbd/core/fd.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/mountinfo.hpp"
#include "device.hpp"
#include "node_work.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#include "support/places.hpp"
#include "unit/host/ground.hpp"

using namespace corbd;
using namespace corbd::test;
using manager::PathState;
using At = PathState::At;
namespace fs = std::filesystem;
namespace ops = manager::ops;

namespace {

/// A child that waits in the folder, and has no file open there.
class Sitter {
 public:
  explicit Sitter(const std::string& folder) {
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool there = ::chdir(folder.c_str()) == 0 && ::write(ready[1], "x", 1) == 1;
      while (there) ::pause();
      ::_exit(1);
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Sitter() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::string pid() const { return std::to_string(pid_); }

 private:
  pid_t pid_ = 0;
};

/// A sysfs of one device.
struct Sys {
  Folder folder;
  fs::path device(const std::string& name, const std::string& number, const std::string& size) const {
    const fs::path made = fs::path(folder.path()) / "class/block" / name;
    fs::create_directories(made);
    fs::create_directories(fs::path(folder.path()) / "dev/block");
    fs::create_symlink("../../class/block/" + name, fs::path(folder.path()) / "dev/block" / number);
    std::ofstream(made / "size") << size << "\n";
    return made;
  }
};

host::Mount mount_of(unsigned major, unsigned minor, const std::string& source) {
  host::Mount mount;
  mount.dev_major = major;
  mount.dev_minor = minor;
  mount.source = source;
  mount.root = "/";
  mount.fstype = "ext4";
  return mount;
}

FolderIdentity folder_of(const std::string& path) { return HeldPath::find(path)->folder_identity().value(); }

}  // namespace

TEST_CASE("a look distinguishes a link, an empty folder, a full one, an empty file and nothing") {
  Folder folder;
  const std::string& root = folder.path();
  fs::create_directory(root + "/empty");
  fs::create_directory(root + "/full");
  std::ofstream(root + "/full/precious") << "x";
  std::ofstream(root + "/file");
  fs::create_symlink(root + "/empty", root + "/link");
  CHECK(ops::look(root + "/none")->at == At::nothing);
  CHECK(ops::look(root + "/empty")->at == At::folder);
  CHECK(ops::look(root + "/full")->at == At::filled);
  CHECK(ops::look(root + "/full")->text == "precious");
  CHECK(ops::look(root + "/full/precious")->at == At::filled);
  CHECK(ops::look(root + "/file")->at == At::file);
  CHECK(ops::look(root + "/link")->at == At::link);
  CHECK_FALSE(ops::look(root + "/file/below"));
}

TEST_CASE("removing a folder removes only what is empty, and nothing outside the root") {
  Folder folder;
  const std::string root = folder.path() + "/root";
  fs::create_directories(root + "/a/b/c");
  std::ofstream(root + "/a/precious") << "x";
  REQUIRE(ops::remove_folder(root + "/a/b/c", root));
  CHECK_FALSE(fs::exists(root + "/a/b"));
  CHECK(fs::exists(root + "/a/precious"));
  REQUIRE(ops::remove_folder(root + "/a", root));
  CHECK(fs::exists(root + "/a/precious"));
  fs::create_directories(root + "/d");
  fs::remove(root + "/a/precious");
  REQUIRE(ops::remove_folder(root + "/a", root));
  REQUIRE(ops::remove_folder(root + "/d", root));
  CHECK(fs::exists(root));
  REQUIRE(ops::remove_folder(folder.path() + "/elsewhere", root));
}

TEST_CASE("a folder is made with its permissions whatever the umask, and what is there keeps its own") {
  Folder folder;
  const mode_t before = ::umask(077);
  REQUIRE(ops::make_folder(folder.path() + "/x/y", 0755));
  ::umask(before);
  struct stat found{};
  REQUIRE(::stat((folder.path() + "/x/y").c_str(), &found) == 0);
  CHECK((found.st_mode & 07777) == 0755);
  REQUIRE(::stat((folder.path() + "/x").c_str(), &found) == 0);
  CHECK((found.st_mode & 07777) == 0700);
  REQUIRE(ops::make_folder(folder.path() + "/x", 0777));
  REQUIRE(::stat((folder.path() + "/x").c_str(), &found) == 0);
  CHECK((found.st_mode & 07777) == 0700);
  std::ofstream(folder.path() + "/file");
  CHECK_FALSE(ops::make_folder(folder.path() + "/file", 0755));
}

TEST_CASE("a folder is recreated with the owner that it had") {
  if (::geteuid() != 0) return;
  Folder folder;
  const std::string path = folder.path() + "/x";
  REQUIRE(ops::put_back(path, {false, 02750, manager::Owner{70, 71}, folder_of(path)}));
  struct stat found{};
  REQUIRE(::stat(path.c_str(), &found) == 0);
  CHECK(found.st_uid == 70);
  CHECK(found.st_gid == 71);
  CHECK((found.st_mode & 07777) == 02750);
  CHECK(ops::look(path)->owner == manager::Owner{70, 71});
}

TEST_CASE("an empty file is recreated with the owner that it had, and an existing one stays") {
  if (::geteuid() != 0) return;
  Folder folder;
  const std::string path = folder.path() + "/x";
  const manager::Before before{true, 0640, manager::Owner{70, 71}, folder_of(path)};
  REQUIRE(ops::put_back(path, before));
  const auto sight = ops::look(path);
  CHECK(sight->at == At::file);
  CHECK(sight->mode == 0640);
  CHECK(sight->owner == manager::Owner{70, 71});
  std::ofstream(path) << "data";
  CHECK(ops::put_back(path, before));
  CHECK(fs::file_size(path) == 4);
  CHECK(ops::put_back(folder.path(), {true, 0600, {}, {}}).error().code == errc::failed_precondition);
}

TEST_CASE("nothing is put back through a link that a parent has become, and a look there tells nothing", "[rule:14]") {
  Folder folder;
  const std::string root = fs::canonical(folder.path());
  fs::create_directories(root + "/home/a");
  fs::create_directories(root + "/roots");
  const auto before = folder_of(root + "/home/a/disk");
  fs::rename(root + "/home/a", root + "/home/b");
  fs::create_directory_symlink(root + "/roots", root + "/home/a");
  for (const bool file : {true, false})
    CHECK(ops::put_back(root + "/home/a/disk", {file, 0644, {}, before}).error().code == errc::invalid_argument);
  CHECK(ops::make_folder(root + "/home/a/x/y", 0700).error().code == errc::invalid_argument);
  fs::create_directories(root + "/roots/x");
  CHECK(ops::remove_folder(root + "/home/a/x", root).error().code == errc::invalid_argument);
  CHECK(fs::exists(root + "/roots/x"));
  CHECK_FALSE(ops::look(root + "/home/a/disk"));
  CHECK(ops::put_back(root + "/gone/disk", {true, 0644, {}, before}).error().code == errc::invalid_argument);
}

TEST_CASE("nothing is put back in another folder that has the name of the one before") {
  Folder folder;
  const std::string root = fs::canonical(folder.path());
  fs::create_directories(root + "/a");
  const auto before = folder_of(root + "/a/disk");
  fs::rename(root + "/a", root + "/b");
  fs::create_directories(root + "/a");
  CHECK(ops::put_back(root + "/a/disk", {true, 0644, {}, before}).error().code == errc::invalid_argument);
  CHECK(fs::is_empty(root + "/a"));
  CHECK(ops::put_back(root + "/b/disk", {true, 0644, {}, before}));
}

TEST_CASE("what a claim without the identity of its folder had is put back as root's") {
  if (::geteuid() != 0) return;
  Folder folder;
  const std::string path = fs::canonical(folder.path()).string() + "/x";
  REQUIRE(ops::put_back(path, {true, 0644, manager::Owner{70, 71}, {}}));
  CHECK(ops::look(path)->owner == manager::Owner{0, 0});
}

TEST_CASE("a link that another user made is not followed to a target") {
  if (::geteuid() != 0) return;
  Folder folder;
  const std::string root = fs::canonical(folder.path());
  fs::create_directories(root + "/roots");
  fs::create_directory_symlink(root + "/roots", root + "/link");
  fs::create_directory_symlink(root + "/link", root + "/first");
  CHECK(*ops::resolve(root + "/first/disk") == root + "/roots/disk");
  REQUIRE(::lchown((root + "/link").c_str(), 1000, 1000) == 0);
  const auto refused = ops::resolve(root + "/first/disk");
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring(root + "/link is a symbolic link of user 1000"));
}

TEST_CASE("a path has one name whatever links lead to it, but a link at its end is not followed") {
  Folder folder;
  const std::string root = fs::canonical(folder.path());
  fs::create_directories(root + "/real/a");
  fs::create_symlink(root + "/real", root + "/link");
  fs::create_symlink(root + "/real/a", root + "/real/end");
  CHECK(*ops::resolve(root + "/link//a/") == root + "/real/a");
  CHECK(*ops::resolve(root + "/real/end") == root + "/real/end");
  CHECK(ops::resolve(root + "/none/a").error().code == errc::not_found);
  CHECK(ops::resolve("relative").error().code == errc::invalid_argument);
  CHECK(ops::resolve("/").error().code == errc::invalid_argument);
  CHECK(ops::resolve(root + "/real/..").error().code == errc::invalid_argument);
}

TEST_CASE("a process that works in a folder, or has a file in it open, is found") {
  Folder folder;
  const std::string root = fs::canonical(folder.path());
  fs::create_directories(root + "/used");
  fs::create_directories(root + "/used-not");
  CHECK(ops::users(root + "/used").empty());
  {
    const Sitter sitter(root + "/used");
    const auto users = ops::users(root + "/used");
    REQUIRE(users.size() == 1);
    CHECK_THAT(users[0], ContainsSubstring("(" + sitter.pid() + ")"));
    CHECK(ops::users(root + "/used-not").empty());
  }
  const Fd open(::open((root + "/used/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const auto users = ops::users(root + "/used");
  REQUIRE(users.size() == 1);
  CHECK_THAT(users[0], ContainsSubstring("(" + std::to_string(::getpid()) + ")"));
}

TEST_CASE("an nbd device that is configured lives, also without a server; one that is not is dead") {
  const Sys sys;
  const fs::path device = sys.device("nbd0", "43:0", "2048");
  const auto why = [&] { return manager::death_of(mount_of(43, 0, "/dev/nbd0"), sys.folder.path()); };
  CHECK_FALSE(why().empty());
  std::ofstream(device / "pid") << "1\n";
  CHECK(why().empty());
  std::ofstream(device / "size") << "0\n";
  CHECK_FALSE(why().empty());
}

TEST_CASE("a device that is not there any more is dead, and one above it too") {
  const Sys sys;
  CHECK_FALSE(manager::death_of(mount_of(43, 5, "/dev/nbd5"), sys.folder.path()).empty());
  const fs::path mapper = sys.device("dm-0", "253:0", "2048");
  fs::create_directories(mapper / "slaves/nbd1");
  CHECK_FALSE(manager::death_of(mount_of(253, 0, "/dev/mapper/x"), sys.folder.path()).empty());
  const fs::path below = sys.device("nbd1", "43:32", "2048");
  std::ofstream(below / "pid") << "1\n";
  CHECK(manager::death_of(mount_of(253, 0, "/dev/mapper/x"), sys.folder.path()).empty());
}

TEST_CASE("a device node that was deleted with its device still gives the device's name") {
  host::Mount mount = mount_of(0, 6, "udev");
  mount.fstype = "devtmpfs";
  mount.root = "/nbd7//deleted";
  CHECK(host::device_of(mount) == "nbd7");
}

TEST_CASE("a filesystem without a device is not dead, one that stopped writing is") {
  const Sys sys;
  host::Mount mount = mount_of(0, 50, "tmpfs");
  CHECK(manager::death_of(mount, sys.folder.path()).empty());
  mount.filesystem_read_only = true;
  CHECK_FALSE(manager::death_of(mount, sys.folder.path()).empty());
  mount.read_only = true;
  CHECK(manager::death_of(mount, sys.folder.path()).empty());
}

TEST_CASE("the port sees a mount without waiting for it, and asks a helper about the rest") {
  Folder folder;
  Loop loop;
  HelperPool pool(loop.control(), loop.clock, helper_child(helper_child_program()));
  const auto node = manager::make_node(pool);
  const auto look = [&](const std::string& path) {
    return Started<PathState>(loop.io, node->look(path, manager::Reach::here, {})).get();
  };
  const PathState proc = look("/proc");
  CHECK(proc.at == At::mounted);
  CHECK_THAT(proc.mount, ContainsSubstring("proc"));
  CHECK(look(folder.path()).at == At::folder);
  CHECK(look(folder.path() + "/none").at == At::nothing);
  CHECK(Started<result<>>(loop.io, node->make_folder(folder.path() + "/made", 0700, {})).get());
  CHECK(fs::is_directory(folder.path() + "/made"));
  CHECK(Started<result<>>(loop.io, node->remove_folder(folder.path() + "/made", folder.path(), {})).get());
  CHECK_FALSE(fs::exists(folder.path() + "/made"));
}

TEST_CASE("a mount below a path counts only if the caller asks for it") {
  Loop loop;
  HelperPool pool(loop.control(), loop.clock, helper_child(helper_child_program()));
  const auto node = manager::make_node(pool);
  const auto mounts = host::make_mounts(pool)->table().value();
  const auto found = std::ranges::find_if(mounts->rows(), [](const auto& row) {
    return row.second.mount.target.starts_with("/dev/") && row.second.mount.fstype == "devpts";
  });
  if (found == mounts->rows().end()) {
    WARN("skipped: no mount to look for");
    return;
  }
  const std::string below = found->second.mount.target, path = fs::path(below).parent_path();
  const Folder folder;
  const auto look = [&](const std::string& at, manager::Reach reach) {
    return Started<PathState>(loop.io, node->look(at, reach, {})).get();
  };
  CHECK(look(folder.path(), manager::Reach::below).at == At::folder);
  CHECK(look(below, manager::Reach::here).at == At::mounted);
  CHECK(look(path, manager::Reach::below).is_mount());
}

TEST_CASE("a missing or empty device counts as one that gives errors") {
  Folder folder;
  CHECK(ops::read_device(folder.path() + "/none").error().code == errc::io);
  std::ofstream(folder.path() + "/empty");
  CHECK(ops::read_device(folder.path() + "/empty").error().code == errc::io);
}

TEST_CASE("a helper that does not answer makes a path unknown, not unmounted") {
  Loop loop;
  auto config = helper_child(helper_child_program());
  config.program = "/bin/false";
  HelperPool pool(loop.control(), loop.clock, config);
  const auto node = manager::make_node(pool);
  const PathState sight = Started<PathState>(loop.io, node->look("/nowhere", manager::Reach::here, {})).get();
  CHECK(sight.at == At::unknown);
  CHECK_FALSE(sight.text.empty());
}

TEST_CASE("a path behind a link or a file is told from one that cannot be looked at") {
  Folder folder;
  const std::string root = fs::canonical(folder.path());
  fs::create_directory(root + "/real");
  fs::create_directory_symlink(root + "/real", root + "/link");
  std::ofstream(root + "/file");
  Loop loop;
  HelperPool pool(loop.control(), loop.clock, helper_child(helper_child_program()));
  const auto node = manager::make_node(pool);
  const auto look = [&](const std::string& path) {
    return Started<PathState>(loop.io, node->look(path, manager::Reach::here, {})).get();
  };
  CHECK(look(root + "/link/a").at == At::unknown);
  CHECK(look(root + "/link/a").barred);
  CHECK(look(root + "/file/a").barred);
  CHECK_FALSE(look(root + "/real/a").barred);
  CHECK_FALSE(look(root + "/link").barred);
}

TEST_CASE("looks below a filesystem that does not answer take no helper from looks at other folders") {
  if (!may_mount()) return;
  Folder folder;
  const std::string root = fs::canonical(folder.path());
  for (const char* name : {"/dead", "/good"}) fs::create_directory(root + name);
  asio::io_context io;
  const auto clock = make_real_clock(io.get_executor());
  HelperPool pool(io.get_executor(), *clock, helper_child(helper_child_program()));
  const auto node = manager::make_node(pool);
  const DeadMount dead(root + "/dead");
  if (!dead.mounted()) return;
  const auto look = [&](const std::string& path) {
    return node->look(path, manager::Reach::here, {clock->now() + std::chrono::seconds(10)});
  };
  std::vector<std::unique_ptr<Started<PathState>>> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(std::make_unique<Started<PathState>>(io, look(root + "/dead/x")));
  CHECK(Started<PathState>(io, look(root + "/good")).get().at == At::folder);
  for (const auto& one : waiting) CHECK(one->get().at == At::unknown);
}
