#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "ground.hpp"
#include "ops.hpp"

using namespace corbd;
using corbd::test::Folder;
namespace ops = corbd::host::ops;

namespace {

// A device's folder as sysfs shows it.
struct Number {
  Number() {
    std::filesystem::create_directory(folder.path() + "/queue");
    put("ro", "0\n");
    put("queue/io_timeout", "30000\n");
    put("queue/max_sectors_kb", "128\n");
    put("queue/max_hw_sectors_kb", "65536\n");
    put("queue/scheduler", "[mq-deadline] none\n");
    put("queue/write_cache", "write through\n");
    put("queue/discard_max_hw_bytes", "2199023255040\n");
    put("queue/discard_max_bytes", "0\n");
  }
  void put(const std::string& name, const std::string& text) { std::ofstream(folder.path() + "/" + name) << text; }
  std::string get(const std::string& name) {
    std::string text;
    std::getline(std::ifstream(folder.path() + "/" + name), text);
    return text;
  }
  // sysfs takes a whole value at a write; a file keeps what lies behind it.
  bool starts(const std::string& name, const std::string& text) { return get("queue/" + name).starts_with(text); }
  result<> tune(host::NumberUse use = {}) { return ops::tune(folder.path(), folder.path() + "/node", use); }
  Folder folder;
};

}  // namespace

TEST_CASE("tuning sets every attribute that the number's last user may have left otherwise", "[rule:5]") {
  Number number;
  REQUIRE(number.tune({.flush = true}));
  CHECK(number.starts("io_timeout", "1000"));
  CHECK(number.starts("max_sectors_kb", "1024"));
  CHECK(number.starts("scheduler", "none"));
  CHECK(number.starts("write_cache", "write back"));
  CHECK(number.starts("discard_max_bytes", "2199023255040"));
}

TEST_CASE("tuning writes nothing that is right already", "[rule:5]") {
  constexpr std::array kNames{"io_timeout", "max_sectors_kb", "scheduler", "write_cache", "discard_max_bytes"};
  Number number;
  number.put("queue/io_timeout", "1000\n");
  number.put("queue/max_sectors_kb", "1024\n");
  number.put("queue/scheduler", "[none] mq-deadline \n");
  number.put("queue/discard_max_bytes", "1048576\n");
  const auto path = [&](const char* name) { return number.folder.path() + "/queue/" + name; };
  for (const auto* name : kNames) std::filesystem::last_write_time(path(name), std::filesystem::file_time_type());
  REQUIRE(number.tune());
  for (const auto* name : kNames)
    CHECK(std::filesystem::last_write_time(path(name)) == std::filesystem::file_time_type());
}

TEST_CASE("a device without schedulers is left without") {
  Number number;
  number.put("queue/scheduler", "none\n");
  CHECK(number.tune());
}

TEST_CASE("a device that discards nothing is left so") {
  Number number;
  number.put("queue/discard_max_hw_bytes", "0\n");
  REQUIRE(number.tune());
  CHECK(number.get("queue/discard_max_bytes") == "0");
}

TEST_CASE("requests become no larger than the hardware allows") {
  Number number;
  number.put("queue/max_hw_sectors_kb", "512\n");
  REQUIRE(number.tune());
  CHECK(number.starts("max_sectors_kb", "512"));
}

TEST_CASE("tuning a device that is gone can be tried again") {
  CHECK(ops::tune("/nonexistent", "/nonexistent", {}).error().code == errc::unavailable);
}

TEST_CASE("a number that stays read-only under a writable volume is refused by name, with the command that helps",
          "[failure:241]") {
  Number number;
  number.put("ro", "1\n");
  number.put("node", "");
  const auto refused = number.tune();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK_THAT(refused.error().text, ContainsSubstring("blockdev --setrw " + number.folder.path() + "/node"));
  CHECK(number.tune({.read_only = true}));
}

TEST_CASE("a device that an earlier user left read-only takes writes after tuning, and the other way round",
          "[failure:241]") {
  if (!test::may_mount()) return;
  Folder folder;
  const auto device = test::LoopDevice::attach(test::make_image(folder.path() + "/a"));
  if (!device) return;
  const std::string name = std::filesystem::path(device->path()).filename().string();
  Number number;
  std::filesystem::remove(number.folder.path() + "/ro");
  std::filesystem::create_symlink("/sys/block/" + name + "/ro", number.folder.path() + "/ro");
  for (const bool read_only : {true, false}) {
    REQUIRE(ops::tune(number.folder.path(), device->path(), {.read_only = read_only}));
    CHECK(number.get("ro") == (read_only ? "1" : "0"));
  }
}

TEST_CASE("a plain file is no device to check for users") {
  Folder folder;
  CHECK(ops::check_unused(test::make_image(folder.path() + "/a")).error().code == errc::invalid_argument);
}

TEST_CASE("a mounted device is in use and an unmounted one is not") {
  if (!test::may_mount()) return;
  Folder folder;
  const std::string image = test::make_image(folder.path() + "/a"), target = folder.path() + "/target";
  const auto device = test::LoopDevice::attach(image);
  if (!device) return;
  REQUIRE(ops::mkfs(device->path(), "ext4", ""));
  CHECK(ops::check_unused(device->path()));
  REQUIRE(ops::mount(device->path(), "ext4", target, ""));
  CHECK(ops::check_unused(device->path()).error().code == errc::in_use);
  REQUIRE(ops::unmount(target));
  CHECK(ops::check_unused(device->path()));
}
