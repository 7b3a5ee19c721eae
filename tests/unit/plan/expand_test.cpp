// Expansion and trim.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE("an expansion reads the image's size, enlarges the device, and then grows the filesystem") {
  Model model = staged_model();
  model.cluster_bytes = kTwo;
  const auto steps = run(model, Wish(Expanded{kPath, kTwo}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::image_size}, step::KernelResize{},
                                    step::Look{Fact::filesystem, kTarget}, step::Grow{kTarget}});
  CHECK(model.filesystem_bytes == kTwo);
}

TEST_CASE("an expansion of a volume that is large enough does not ask the cluster and grows nothing") {
  Model model = staged_model();
  model.seen.image_size = model.seen.devices.front().size = model.filesystem_bytes = kTwo;
  const auto steps = run(model, Wish(Expanded{kPath, kTwo}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::filesystem, kTarget}});
  CHECK(model.seen.facts.filesystem.has_value());
}

TEST_CASE("a filesystem has room to grow only if its device is more than one block larger") {
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

TEST_CASE("an expansion of an unserved device fails as unavailable") {
  Model model = staged_model();
  model.seen.link = Observation::Link::closed;
  CHECK(failure(model.decide(Wish(Expanded{kPath, 1}))) == errc::unavailable);
}

TEST_CASE("an expansion whose staging path is not the volume's goes by its volume path") {
  Model model = staged_model();
  model.record->publishes.push_back({"/target", kPath, false});
  CHECK(failure(model.decide(Wish(Expanded{"/staging/of/another/form", 0, "/target"}))) == errc::ok);
}

TEST_CASE("an expansion accepts every path at which its volume is staged, published or mounted, and no other path") {
  Model model = staged_model();
  model.record->publishes.push_back({"/target", kPath, false});
  model.seen.mounts.push_back(mount_of(model.seen.devices.front(), "/kubelet/binds/it"));
  for (const std::string& path : {kPath, kPath + "/" + kId, std::string("/target"), std::string("/kubelet/binds/it")})
    CHECK(failure(model.decide(Wish(Expanded{path, 0}))) == errc::ok);
  CHECK(failure(model.decide(Wish(Expanded{"/elsewhere", 0}))) == errc::not_found);
  CHECK(failure(model.decide(Wish(Expanded{"/elsewhere", 0, "/nowhere"}))) == errc::not_found);
  CHECK(failure(fresh().decide(Wish(Expanded{kPath, 0}))) == errc::not_found);
}

TEST_CASE("an expansion skips a filesystem that is read-only by request, and fails on one that turned read-only") {
  Model model = staged_model();
  model.seen.image_size = model.seen.devices.front().size = kTwo;
  model.seen.mounts.front().filesystem_read_only = true;
  CHECK(failure(model.decide(Wish(Expanded{kPath, kTwo}))) == errc::failed_precondition);
  model.record->stagings.front().capability.mount_flags = "noatime,ro";
  CHECK(std::holds_alternative<Done>(model.decide(Wish(Expanded{kPath, kTwo}))));
}

TEST_CASE("an expansion of a raw block volume enlarges the device and grows no filesystem") {
  Model model = staged_model();
  model.record->use.block = model.record->stagings.front().capability.block = true;
  model.cluster_bytes = kTwo;
  const auto steps = run(model, Wish(Expanded{kPath, 0}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Look{Fact::image_size}, step::KernelResize{}});
}

TEST_CASE("a trim runs once, and only on a filesystem that is served and writable") {
  Model model = staged_model();
  const auto steps = run(model, Wish(Trimmed{kPath}));
  REQUIRE(steps);
  CHECK(*steps == std::vector<Step>{step::Trim{kTarget}});
  model = staged_model();
  CHECK(*run(model, Wish(Trimmed{kPath, 4096})) == std::vector<Step>{step::Trim{kTarget, 4096}});
  CHECK(failure(staged_model().decide(Wish(Trimmed{"/elsewhere"}))) == errc::not_found);
  model = staged_model();
  model.record->use.block = true;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::unimplemented);
  model = staged_model();
  model.seen.mounts.front().filesystem_read_only = true;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::failed_precondition);
  model = staged_model();
  model.seen.link = Observation::Link::held;
  CHECK(failure(model.decide(Wish(Trimmed{kPath}))) == errc::unavailable);
}
