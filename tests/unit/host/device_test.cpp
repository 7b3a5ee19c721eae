#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "ground.hpp"
#include "ops.hpp"

using namespace corbd;
using corbd::test::Folder;
namespace ops = corbd::host::ops;

namespace {

// A queue folder as sysfs shows it.
struct Queue {
  Queue() {
    put("io_timeout", "30000\n");
    put("max_sectors_kb", "128\n");
    put("max_hw_sectors_kb", "65536\n");
    put("scheduler", "[mq-deadline] none\n");
  }
  void put(const std::string& name, const std::string& text) { std::ofstream(folder.path() + "/" + name) << text; }
  std::string get(const std::string& name) {
    std::string text;
    std::getline(std::ifstream(folder.path() + "/" + name), text);
    return text;
  }
  // sysfs takes a whole value at a write; a file keeps what lies behind it.
  bool starts(const std::string& name, const std::string& text) { return get(name).starts_with(text); }
  Folder folder;
};

}  // namespace

TEST_CASE("tuning writes the three queue attributes") {
  Queue queue;
  REQUIRE(ops::tune(queue.folder.path()));
  CHECK(queue.starts("io_timeout", "1000"));
  CHECK(queue.starts("max_sectors_kb", "1024"));
  CHECK(queue.starts("scheduler", "none"));
}

TEST_CASE("tuning writes nothing that is right already") {
  Queue queue;
  queue.put("io_timeout", "1000\n");
  queue.put("max_sectors_kb", "1024\n");
  queue.put("scheduler", "[none] mq-deadline \n");
  for (const auto* name : {"io_timeout", "max_sectors_kb", "scheduler"})
    std::filesystem::last_write_time(queue.folder.path() + "/" + name, std::filesystem::file_time_type());
  REQUIRE(ops::tune(queue.folder.path()));
  for (const auto* name : {"io_timeout", "max_sectors_kb", "scheduler"})
    CHECK(std::filesystem::last_write_time(queue.folder.path() + "/" + name) == std::filesystem::file_time_type());
}

TEST_CASE("a device without schedulers is left without") {
  Queue queue;
  queue.put("scheduler", "none\n");
  CHECK(ops::tune(queue.folder.path()));
}

TEST_CASE("requests become no larger than the hardware allows") {
  Queue queue;
  queue.put("max_hw_sectors_kb", "512\n");
  REQUIRE(ops::tune(queue.folder.path()));
  CHECK(queue.starts("max_sectors_kb", "512"));
}

TEST_CASE("tuning a device that is gone can be tried again") {
  CHECK(ops::tune("/nonexistent/queue").error().code == errc::unavailable);
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
