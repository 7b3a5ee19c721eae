// Plays the requests of corbd-writer's model on images of a real cluster, without a kernel: the only way for NBD's
// WRITE_ZEROES, which corbd answers but no device of ours offers.
#include "rbd_lab.hpp"
#include "writer/model.hpp"

using namespace corbd;
using namespace corbd::lab;
using writer::Kind;

namespace {

constexpr std::uint64_t kSize = (16 << 20) + 4096;

int perform(image::Image& image, const writer::Request& request, std::span<writer::Sector> data) {
  const auto bytes = std::as_writable_bytes(data.first(request.length / writer::sector_size));
  Wait wait;
  switch (request.kind) {
    case Kind::read:
      image.read(wait, request.offset, bytes);
      break;
    case Kind::write:
      image.write(wait, request.offset, bytes);
      break;
    case Kind::discard:
      image.discard(wait, request.offset, request.length);
      break;
    case Kind::zero:
    case Kind::zero_range:
    case Kind::punch_hole:
      image.write_zeroes(wait, request.offset, request.length);
      break;
    case Kind::sync:
      image.flush(wait);
      break;
  }
  return wait.get();
}

}  // namespace

TEST_CASE(
    "reads, writes, discards and write-zeroes leave each byte that a model says, however an image lies in objects") {
  const writer::Layout layout = GENERATE(writer::Layout{}, writer::Layout{1 << 20, 64 << 10, 4},
                                         writer::Layout{1 << 20, 16 << 10, 3}, writer::Layout{64 << 10, 64 << 10, 1});
  Admin admin;
  admin.remove("modelled");
  int order = std::countr_zero(layout.object_size);
  Admin::check(rbd_create3(admin.io, "modelled", kSize, 61, &order, layout.stripe_unit, layout.stripe_count));
  Agent agent;
  auto image = agent.open("modelled");
  REQUIRE(image);
  std::vector<writer::Sector> data(kSize / writer::sector_size);
  writer::Model model(std::vector<writer::Model::Content>(data.size()), layout);
  writer::Requests requests(20261128, 1, kSize, layout);
  for (int i = 0; i < 300; ++i) {
    const writer::Request request = requests.next();
    INFO(request.text());
    if (request.kind == Kind::write) writer::fill(request, data);
    REQUIRE(perform(**image, request, data) == 0);
    REQUIRE(model.ended(request, data) == "");
  }
  agent.close(std::move(*image));
  const auto found = admin.read("modelled", 0, kSize);
  std::memcpy(data.data(), found.data(), kSize);
  CHECK(model.check(0, data) == "");
}
