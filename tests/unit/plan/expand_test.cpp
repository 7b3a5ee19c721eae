// Volumes that grow, and give back what they do not use.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE("an expansion asks for the image's size, enlarges the device, and then the filesystem") {
  Model model = staged_model();
  model.cluster_bytes = kTwo;
  const auto steps = run(model, Wish(Expanded{kPath, kTwo}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::image_size}, step::KernelResize{},
                                    step::Look{Fact::filesystem, kTarget}, step::Grow{kTarget}});
  CHECK(model.filesystem_bytes == kTwo);
}

TEST_CASE("an expansion of what is large enough asks the cluster nothing and grows nothing") {
  Model model = staged_model();
  model.seen.image_size = model.seen.devices.front().size = model.filesystem_bytes = kTwo;
  const auto steps = run(model, Wish(Expanded{kPath, kTwo}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::filesystem, kTarget}});
  CHECK(model.seen.facts.filesystem.has_value());
}

TEST_CASE("a rest smaller than a block of the filesystem is not room to grow into") {
  CHECK_FALSE(host::has_room({1 << 20, 4096}, (1 << 20) + 4096));
  CHECK(host::has_room({1 << 20, 4096}, (1 << 20) + 4097));
}

TEST_CASE("an expansion beyond the image's size is out of range") {
  Model model = staged_model();
  model.cluster_bytes = 1 << 30;
  Decision last;
  REQUIRE(run(model, Wish(Expanded{kPath, kTwo}), &last));
  CHECK(failure(last) == errc::out_of_range);
}

TEST_CASE("an expansion of a device without a server is left to healing, and repeated") {
  Model model = staged_model();
  model.seen.link = Observation::Link::closed;
  CHECK(failure(model.decide(Wish(Expanded{kPath, 1}))) == errc::unavailable);
}

TEST_CASE("an expansion finds the volume by every path that it is at, and by no other") {
  Model model = staged_model();
  model.record->publishes.push_back({"/target", kPath, false});
  model.seen.mounts.push_back(mount_of(model.seen.devices.front(), "/kubelet/binds/it"));
  for (const std::string& path : {kPath, kPath + "/" + kId, std::string("/target"), std::string("/kubelet/binds/it")})
    CHECK(failure(model.decide(Wish(Expanded{path, 0}))) == errc::ok);
  CHECK(failure(model.decide(Wish(Expanded{"/elsewhere", 0}))) == errc::not_found);
  CHECK(failure(fresh().decide(Wish(Expanded{kPath, 0}))) == errc::not_found);
}

TEST_CASE("a filesystem that is read-only as wanted is left alone, one that turned so cannot grow") {
  Model model = staged_model();
  model.seen.image_size = model.seen.devices.front().size = kTwo;
  model.seen.mounts.front().filesystem_read_only = true;
  CHECK(failure(model.decide(Wish(Expanded{kPath, kTwo}))) == errc::failed_precondition);
  model.record->stagings.front().capability.mount_flags = "noatime,ro";
  CHECK(std::holds_alternative<Done>(model.decide(Wish(Expanded{kPath, kTwo}))));
}

TEST_CASE("a raw block volume has no filesystem to grow") {
  Model model = staged_model();
  model.record->block = model.record->stagings.front().capability.block = true;
  model.cluster_bytes = kTwo;
  const auto steps = run(model, Wish(Expanded{kPath, 0}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::image_size}, step::KernelResize{}});
}

TEST_CASE("free space is given back once, by a filesystem that is served and may be written") {
  Model model = staged_model();
  const auto steps = run(model, Wish(Trimmed{kPath}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Trim{kTarget}});
  CHECK(failure(staged_model().decide(Wish(Trimmed{"/elsewhere"}))) == errc::not_found);
  model = staged_model();
  model.record->block = true;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::unimplemented);
  model = staged_model();
  model.seen.mounts.front().filesystem_read_only = true;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::failed_precondition);
  model = staged_model();
  model.seen.link = Observation::Link::held;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::unavailable);
}
