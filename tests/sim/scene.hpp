// One agent on one node with one image, and the rules looked after at every wish.
#pragma once

#include "support/catch.hpp"
#include "support/world.hpp"

namespace corbd::test {

inline const std::string kId = "image-1";

struct Scene {
  Loop loop;
  World world{loop};
  Scene() {
    world.images[kId].id = "id-1";
    world.start_agent();
  }
  errc want(volume::Wish wish, const std::string& id = kId) {
    const auto done = world.want(id, std::move(wish));
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
    return done ? errc::ok : done.error().code;
  }
  FakeImage& image() { return world.images[kId]; }
  void filled() {
    image().data = true;
    image().content = host::Probe::Kind::filesystem;
    image().fstype = "ext4";
  }
};

}  // namespace corbd::test
