#include "head_start.hpp"

#include <algorithm>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

// The agent that serves needs the machine too.
constexpr int kOpenAtOnce = 4;

}  // namespace

struct HeadStart::Preopening {
  struct Image {
    std::string volume_id;
    image::Access access;
    image::Key key;
  };
  std::vector<Image> left;
  std::vector<std::pair<image::Access, std::size_t>> connections;  ///< for so many images each
  std::vector<std::string> unopened;
  Until until;
};

task<result<HeadStart::Preopening>> HeadStart::plan(Until until) {
  const auto records = co_await ports_.records.peek();
  if (!records) co_return records.error();
  Preopening preopening{{}, {}, {}, until};
  for (const auto& record : *records) {
    if (!record.device || !traits(record.kind).served) continue;
    const auto key = co_await ports_.records.load_key(record.volume_id);
    const auto access = key ? access_of(ports_, record, *key) : result<image::Access>(key.error());
    if (!access) {
      preopening.unopened.push_back(record.volume_id);
      continue;
    }
    preopening.left.push_back({record.volume_id, *access, record.key});
    auto& all = preopening.connections;
    const auto place = std::ranges::find(all, *access, &std::pair<image::Access, std::size_t>::first);
    if (place == all.end())
      all.emplace_back(*access, 1);
    else
      ++place->second;
  }
  co_return preopening;
}

task<> HeadStart::connect_ahead(image::Access access, std::size_t images, Until until) {
  const auto prepared = co_await ports_.clusters.prepare(access, images, until);
  if (!prepared)
    log::info("cluster.not_connected_ahead", {{"cluster", access.cluster_id}, {"error", prepared.error().text}});
}

/// A reader leaves no trace at the image. What it brings is ours: sessions with the OSDs, and librbd's code in memory.
task<> HeadStart::preopen_images(Preopening& preopening) {
  while (!preopening.left.empty()) {
    const auto image = std::move(preopening.left.back());
    preopening.left.pop_back();
    image::OpenOptions options;
    options.read_only = true;
    auto opened = co_await ports_.clusters.open(image.access, image.key, options, preopening.until);
    if (opened) {
      static_cast<void>(co_await (*opened)->close(preopening.until));
      continue;
    }
    log::info("image.not_preopened", {{"volume", image.volume_id}, {"error", opened.error().text}});
    preopening.unopened.push_back(image.volume_id);
  }
}

task<result<std::vector<std::string>>> HeadStart::preopen(Until until) {
  auto preopening = co_await plan(until);
  if (!preopening) co_return preopening.error();
  Gate& connecting = gates_.emplace_back(control_, clock_);
  for (auto& [access, images] : preopening->connections)
    connecting.spawn(connect_ahead(std::move(access), images, until));
  co_await connecting.close({});
  Gate& opening = gates_.emplace_back(control_, clock_);
  for (int i = 0; i < kOpenAtOnce; ++i) opening.spawn(preopen_images(*preopening));
  co_await opening.close({});
  co_return std::move(preopening->unopened);
}

task<> HeadStart::fence_one(image::Access access, Until until) {
  static_cast<void>(co_await ports_.clusters.fence_dead(std::move(access), until));
}

task<> HeadStart::fence_early(Until until) {
  std::vector<image::Access> clusters;
  for (const auto& [id, volume] : volumes_) {
    if (!volume->history.unserved_since || volume->key.known().empty()) continue;
    auto access = access_of(ports_, *volume->record, volume->key.known());
    if (access && std::ranges::find(clusters, *access) == clusters.end()) clusters.push_back(std::move(*access));
  }
  Gate& fencing = gates_.emplace_back(control_, clock_);
  for (auto& access : clusters) fencing.spawn(fence_one(std::move(access), until));
  co_await fencing.close({});
}

}  // namespace corbd::volume
