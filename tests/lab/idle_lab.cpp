// Measures what open images cost that nobody reads or writes: librbd's part of an idle agent. Run: lab_rbd "[idle]".
#include "rbd_lab.hpp"
#include "support/cpu.hpp"

using namespace corbd;
using namespace corbd::lab;

namespace {

constexpr int kImages = 300;
constexpr std::chrono::seconds kTime{60};

}  // namespace

TEST_CASE("300 open images that nobody uses", "[.idle]") {
  Admin admin;
  Agent agent;
  std::vector<std::unique_ptr<image::Image>> images;
  for (int number = 0; number < kImages; ++number) {
    const auto name = "idle-" + std::to_string(number);
    admin.create(name);
    auto image = agent.open(name);
    REQUIRE(image);
    REQUIRE(write(**image, 0, pattern(4096, 1)) == 0);  // it holds its lock, as that of a volume does
    images.push_back(std::move(*image));
  }
  agent.run_for(std::chrono::seconds(10));
  const double before = test::cpu_seconds();
  agent.run_for(kTime);
  const double used = test::cpu_seconds() - before;
  std::printf("%d open images: %.3f s of CPU in %lld s, %.3f %% of a core\n", kImages, used,
              static_cast<long long>(kTime.count()), 100 * used / static_cast<double>(kTime.count()));
  for (auto& image : images) agent.close(*image);
}
