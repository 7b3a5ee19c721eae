// Tests images that others use too: many writers, and mirrors.
#include "rbd_lab.hpp"

using namespace corbd;
using namespace corbd::lab;

namespace {

/// ENCODE_START of Ceph's types: version, compatible version, length.
std::string versioned(char version, const std::string& body) {
  std::string out{version, version};
  for (int i = 0; i < 4; ++i) out += static_cast<char>(body.size() >> (8 * i));
  return out + body;
}

std::string text(const std::string& what) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(what.size() >> (8 * i));
  return out + what;
}

/// What rbd-mirror of another site does: it keeps the image open, and reports on it (cls_rbd's
/// mirror_image_status_set).
void report_as_mirror(Admin& daemon, const std::string& name) {
  rbd_image_t image = daemon.open(name);
  rbd_mirror_image_info_t info{};
  Admin::check(rbd_mirror_image_get_info(image, &info, sizeof info));
  const std::string global_id = info.global_id;
  rbd_mirror_image_get_info_cleanup(&info);
  Admin::check(rbd_close(image));
  const std::string replaying(1, 4), never(8, '\0'), up(1, 1);
  const std::string request =
      text(global_id) + versioned(2, text("another-site") + replaying + text("replaying") + never + up);
  Admin::check(rados_exec(daemon.io, "rbd_mirroring", "rbd", "mirror_image_status_set", request.data(), request.size(),
                          nullptr, 0));
}

/// A mirrored image; mirroring ends with the test.
struct Mirrored {
  explicit Mirrored(std::string called) : name(std::move(called)) {
    Admin::check(rbd_mirror_mode_set(admin.io, RBD_MIRROR_MODE_IMAGE));
    admin.create(name);
    rbd_image_t image = admin.open(name);
    Admin::check(rbd_mirror_image_enable2(image, RBD_MIRROR_IMAGE_MODE_SNAPSHOT));
    Admin::check(rbd_close(image));
  }
  ~Mirrored() {
    rbd_image_t image = nullptr;
    if (rbd_open(admin.io, name.c_str(), &image, nullptr) < 0) return;
    rbd_mirror_image_disable(image, true);
    rbd_close(image);
    rbd_mirror_mode_set(admin.io, RBD_MIRROR_MODE_DISABLED);
  }
  Admin admin;
  const std::string name;
};

}  // namespace

TEST_CASE("two clients write one image in turn as long as neither requests the lock") {
  Admin admin;
  admin.create("shared");
  Agent agent;
  auto image = agent.open("shared");
  REQUIRE(image);
  rbd_image_t other = admin.open("shared");
  for (unsigned round = 0; round < 3; ++round) {
    const auto ours = pattern(4096, round), theirs = pattern(4096, round + 100);
    REQUIRE(write(**image, 0, ours) == 0);
    REQUIRE(rbd_write(other, 4096, theirs.size(), reinterpret_cast<const char*>(theirs.data())) == 4096);
    CHECK(admin.read("shared", 0, 4096) == ours);
    CHECK(read(**image, 4096, 4096) == theirs);
  }
  Admin::check(rbd_close(other));
  agent.close(**image);
}

TEST_CASE("rbd-mirror does not count as a foreign watcher of its mirrored image, and any other client does",
          "[failure:108]") {
  Mirrored mirrored("mirrored");
  Agent agent;
  auto image = agent.open("mirrored");
  REQUIRE(image);
  Admin daemon;
  rbd_image_t open = daemon.open("mirrored");
  const auto stranger = agent.ownership(**image);
  REQUIRE(stranger);
  CHECK(stranger->foreign_watchers.size() == 1);
  report_as_mirror(daemon, "mirrored");
  const auto known = agent.ownership(**image);
  REQUIRE(known);
  CHECK(known->foreign_watchers.empty());
  Admin::check(rbd_close(open));
  agent.close(**image);
}

TEST_CASE(
    "an image whose primary is another cluster's is not opened, neither to write nor to read, until it is promoted",
    "[failure:108]") {
  Mirrored mirrored("secondary");
  Agent agent;
  rbd_image_t image = mirrored.admin.open("secondary");
  Admin::check(rbd_mirror_image_demote(image));
  for (const bool read_only : {false, true}) {
    image::OpenOptions options;
    options.read_only = read_only;
    const auto refused = agent.open("secondary", options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::failed_precondition);
    CHECK_THAT(refused.error().text, ContainsSubstring("rbd mirror image promote " + pool_name() + "/secondary"));
  }
  Admin::check(rbd_mirror_image_promote(image, true));
  Admin::check(rbd_close(image));
  auto opened = agent.open("secondary");
  REQUIRE(opened);
  agent.close(**opened);
}
