#include "deaf.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <functional>
#include <set>
#include <thread>

#include "corbd/core/expect.hpp"
#include "failure.hpp"

namespace corbd::rbd {
namespace {

constexpr std::chrono::seconds kAnswersWithin{5};
constexpr std::chrono::milliseconds kLooksEvery{50};
constexpr std::size_t kMostObjects = 64;

}  // namespace

result<Layout> read_layout(rbd_image_t image) {
  Layout layout;
  rbd_image_info_t info{};
  std::string prefix(256, '\0');
  int r = rbd_stat(image, &info, sizeof(info));
  if (r >= 0) r = rbd_get_block_name_prefix(image, prefix.data(), prefix.size());
  if (r >= 0) r = rbd_get_stripe_unit(image, &layout.stripe_bytes);
  if (r >= 0) r = rbd_get_stripe_count(image, &layout.stripe_count);
  if (r < 0) return failure("reading the image's layout", r);
  layout.prefix = prefix.c_str();
  layout.object_bytes = info.obj_size;
  layout.pool_id = rbd_get_data_pool_id(image);
  return layout;
}

std::vector<std::string> data_objects(const Layout& layout, image::Range range) {
  const std::uint64_t rows_of_object = layout.object_bytes / layout.stripe_bytes;
  const std::uint64_t first = range.offset / layout.stripe_bytes;
  const std::uint64_t last = (range.offset + std::max<std::uint64_t>(range.length, 1) - 1) / layout.stripe_bytes;
  std::set<std::uint64_t> numbers;
  for (std::uint64_t stripe = first; stripe <= last && numbers.size() < kMostObjects; ++stripe) {
    const std::uint64_t row = stripe / layout.stripe_count, column = stripe % layout.stripe_count;
    numbers.insert(row / rows_of_object * layout.stripe_count + column);
  }
  std::vector<std::string> names;
  for (const std::uint64_t number : numbers) {
    std::array<char, 16> digits;
    const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr - digits.data();
    const auto length = static_cast<std::size_t>(written);
    names.push_back(layout.prefix + "." + std::string(digits.size() - length, '0') +
                    std::string(digits.data(), length));
  }
  return names;
}

struct Questions::One {
  explicit One(std::shared_ptr<OpenPool> in) : pool(std::move(in)) {}
  ~One() { rados_aio_release(completion); }
  /// A thread of librados.
  static void told(rados_completion_t completion, void* argument) {
    const std::unique_ptr<std::shared_ptr<One>> one(static_cast<std::shared_ptr<One>*>(argument));
    const int r = rados_aio_get_return_value(completion);
    (*one)->answered = r != -ETIMEDOUT && r != -ECANCELED;
    (*one)->ended = true;
  }

  const std::shared_ptr<OpenPool> pool;
  bool asked = false;
  rados_completion_t completion = nullptr;
  std::uint64_t bytes = 0;
  std::time_t changed = 0;
  std::atomic<bool> answered = false, ended = false;
};

void Questions::ask(const std::shared_ptr<OpenPool>& pool, const std::string& object) {
  const auto one = std::make_shared<One>(pool);
  auto held = std::make_unique<std::shared_ptr<One>>(one);
  expect(rados_aio_create_completion2(held.get(), &One::told, &one->completion) == 0, "a completion is only memory");
  // librados has it from now on, until the answer.
  one->asked = rados_aio_stat(pool->io.get(), object.c_str(), one->completion, &one->bytes, &one->changed) >= 0;
  if (one->asked) static_cast<void>(held.release());
  all_.push_back(one);
}

Questions::~Questions() {
  for (const auto& one : all_)
    if (one->asked && !one->ended) static_cast<void>(rados_aio_cancel(one->pool->io.get(), one->completion));
}

void Questions::cancel() const {
  for (const auto& one : all_) {
    if (!one->asked) continue;
    if (!one->ended) static_cast<void>(rados_aio_cancel(one->pool->io.get(), one->completion));
    rados_aio_wait_for_complete_and_cb(one->completion);
  }
}

std::vector<bool> Questions::answers() const {
  std::vector<bool> all;
  std::ranges::transform(all_, std::back_inserter(all), [](const auto& one) { return one->answered.load(); });
  return all;
}

result<std::shared_ptr<Questions>> ask_about(const ImageObjects& of, rados_t by, image::Range range) {
  const auto open = [&](std::int64_t id) -> result<std::shared_ptr<OpenPool>> {
    auto pool = open_pool(by, id, of.key.ns);
    if (!pool) return pool.error();
    return std::make_shared<OpenPool>(std::move(*pool));
  };
  const auto own = open(of.key.pool_id), data = open(of.layout.pool_id);
  if (!own) return own.error();
  if (!data) return data.error();
  auto asked = std::make_shared<Questions>();
  asked->ask(*own, header_of(of.key));
  if ((of.features & RBD_FEATURE_OBJECT_MAP) != 0) asked->ask(*own, "rbd_object_map." + of.key.image_id);
  for (const auto& object : data_objects(of.layout, range)) asked->ask(*data, object);
  return asked;
}

Compared compare(const std::vector<bool>& answered, const std::vector<bool>& answered_anew) {
  if (std::ranges::all_of(answered, std::identity())) return Compared::all_answered;
  for (std::size_t i = 0; i < answered.size() && i < answered_anew.size(); ++i)
    if (!answered[i] && answered_anew[i]) return Compared::only_new;
  return Compared::neither;
}

Compared compare(const Questions& asked, const Questions& asked_anew) {
  const auto end = std::chrono::steady_clock::now() + kAnswersWithin;
  for (;;) {
    const Compared compared = compare(asked.answers(), asked_anew.answers());
    if (compared == Compared::all_answered || std::chrono::steady_clock::now() >= end) return compared;
    std::this_thread::sleep_for(kLooksEvery);
  }
}

}  // namespace corbd::rbd
