// Tests the mark of the writer of an image without exclusive-lock on a real cluster.
#include "rbd_lab.hpp"

using namespace corbd;
using namespace corbd::lab;

namespace {

constexpr std::uint64_t kLayering = 1;

struct Marked {
  Admin admin;
  Agent agent, other;
  Marked() { admin.create("marked", 64 << 20, kLayering); }
  std::unique_ptr<image::Image> open(Agent& by, const std::string& name = "marked") {
    auto image = by.open(name);
    REQUIRE(image);
    return std::move(*image);
  }
  /// As the planner does: it looks, then marks.
  result<> mark(Agent& by, image::Image& image) {
    REQUIRE(by.ownership(image));
    return by.run(image.acquire_lock(by.in(20s)));
  }
  std::string writer(Agent& by, image::Image& image) {
    const auto who = by.ownership(image);
    REQUIRE(who);
    return who->writer;
  }
};

/// A clone of an image, which lives as long as this.
class Clone {
 public:
  Clone(Admin& admin, std::string of, std::string name) : admin_(admin), of_(std::move(of)), name_(std::move(name)) {
    parent([](rbd_image_t image) {
      Admin::check(rbd_snap_create(image, "base"));
      Admin::check(rbd_snap_protect(image, "base"));
    });
    int order = 22;
    Admin::check(rbd_clone(admin_.io, of_.c_str(), "base", admin_.io, name_.c_str(), kLayering, &order));
  }
  ~Clone() {
    admin_.remove(name_);
    parent([](rbd_image_t image) {
      Admin::check(rbd_snap_unprotect(image, "base"));
      Admin::check(rbd_snap_remove(image, "base"));
    });
  }
  Clone(const Clone&) = delete;
  Clone& operator=(const Clone&) = delete;

 private:
  void parent(void (*work)(rbd_image_t)) {
    rbd_image_t image = admin_.open(of_);
    work(image);
    Admin::check(rbd_close(image));
  }
  Admin& admin_;
  const std::string of_, name_;
};

}  // namespace

TEST_CASE("the next client learns who writes an image without exclusive-lock, until that one has closed it",
          "[failure:143]") {
  Marked scene;
  const auto writer = scene.open(scene.agent), next = scene.open(scene.other);
  CHECK(scene.writer(scene.other, *next).empty());
  REQUIRE(scene.mark(scene.agent, *writer));
  CHECK(scene.writer(scene.other, *next) == writer->client());
  CHECK(scene.writer(scene.agent, *writer).empty());
  scene.agent.close(*writer);
  CHECK(scene.writer(scene.other, *next).empty());
  scene.other.close(*next);
}

TEST_CASE("closing an image does not remove a later mark") {
  Marked scene;
  const auto first = scene.open(scene.agent), second = scene.open(scene.agent), next = scene.open(scene.other);
  REQUIRE(scene.mark(scene.agent, *first));
  REQUIRE(scene.mark(scene.agent, *second));
  scene.agent.close(*first);
  CHECK(scene.writer(scene.other, *next) == second->client());
  scene.agent.close(*second);
  CHECK(scene.writer(scene.other, *next).empty());
  scene.other.close(*next);
}

TEST_CASE("a mark that comes after another client's replaces nothing") {
  Marked scene;
  const auto late = scene.open(scene.agent), next = scene.open(scene.other);
  REQUIRE(scene.agent.ownership(*late));
  REQUIRE(scene.mark(scene.other, *next));
  const auto done = scene.agent.run(late->acquire_lock(scene.agent.in(20s)));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::in_use);
  CHECK(scene.writer(scene.agent, *late) == next->client());
  scene.agent.close(*late);
  CHECK(scene.agent.incarnation_files() > 0);
  const auto again = scene.open(scene.agent);
  CHECK(scene.writer(scene.agent, *again) == next->client());
  scene.agent.close(*again);
  scene.other.close(*next);
}

TEST_CASE("a clone does not count its parent's writer as its own", "[failure:143]") {
  Marked scene;
  const auto writer = scene.open(scene.agent);
  REQUIRE(scene.mark(scene.agent, *writer));
  const Clone clone(scene.admin, "marked", "child");
  CHECK_FALSE(scene.admin.metadata("child", "corbd/writer").empty());
  const auto child = scene.open(scene.other, "child");
  CHECK(scene.writer(scene.other, *child).empty());
  scene.other.close(*child);
  scene.agent.close(*writer);
}
