// The io thread submits to librbd itself, for all devices. So a submitting call must wait for nobody.
#include <future>

#include "rbd_lab.hpp"

using namespace corbd;
using namespace corbd::lab;

namespace {

// More operations than librados lets through by default (1,024), and than 32 devices have under way (16,384); and
// reads of more bytes in all (1.2 GiB) than the agent's budget lets in for 32 devices with requests of the kernel's.
constexpr std::size_t kSmall = 20'000, kLarge = 1'200, kEach = 100;
constexpr std::uint64_t kBytes = 1u << 30, kPage = 4096, kMiB = 1u << 20;

}  // namespace

TEST_CASE("submitting waits for nobody while the cluster hangs, and everything is answered when it goes on") {
  const std::string osd = env("CORBD_LAB_OSD_PID");
  if (osd.empty()) return;
  Admin admin;
  admin.create("submitted", kBytes, RBD_FEATURE_LAYERING | RBD_FEATURE_EXCLUSIVE_LOCK);
  Agent agent;
  auto image = agent.open("submitted");
  REQUIRE(image);
  REQUIRE(agent.run((*image)->acquire_lock(agent.in(20s))));
  const auto bytes = pattern(kPage, 7);
  std::vector<std::byte> page(kPage), large(kMiB);
  std::vector<Wait> waits(kSmall + kLarge + 3 * kEach);
  ::kill(std::stoi(osd), SIGSTOP);
  auto submitting = std::async(std::launch::async, [&] {
    auto next = waits.begin();
    for (std::size_t i = 0; i < kSmall; ++i) (*image)->read(*next++, i * kPage, page);
    for (std::size_t i = 0; i < kLarge; ++i) (*image)->read(*next++, i % (kBytes / kMiB) * kMiB, large);
    for (std::size_t i = 0; i < kEach; ++i) {
      (*image)->write(*next++, i * kPage, bytes);
      (*image)->discard(*next++, kBytes / 2, kBytes / 4);
      (*image)->flush(*next++);
    }
  });
  const auto how = submitting.wait_for(30s);
  ::kill(std::stoi(osd), SIGCONT);
  CHECK(how == std::future_status::ready);
  submitting.get();
  for (auto& wait : waits) REQUIRE(wait.get() == 0);
  CHECK(read(**image, (kEach - 1) * kPage, kPage) == bytes);
  agent.close(std::move(*image));
}
