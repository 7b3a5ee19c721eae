#include "closes.hpp"

#include <chrono>
#include <utility>

#include "corbd/core/log.hpp"
#include "corbd/plan/outcome.hpp"
#include "neighbours.hpp"

namespace corbd::volume {
namespace {

// How long the close of an image that was given up gets, before its client is judged, and judged again.
constexpr std::chrono::seconds kJudgesAfter{60};

}  // namespace

void Closes::begin(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image,
                   std::optional<image::Access> given_up) {
  if (gate_.closed())
    left_open_.push_back({std::move(image), std::move(link)});
  else
    gate_.spawn(close(std::move(link), std::move(image), std::move(given_up)));
}

task<> Closes::end(Until until) { co_await gate_.close(until); }

task<> Closes::close(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image,
                     std::optional<image::Access> given_up) {
  const auto some_time = [&] { return given_up ? Until{clock_.now() + kJudgesAfter} : Until{}; };
  while (link) {
    const Waited idle = co_await link->idle(some_time());
    if (idle == Waited::ready || !given_up || !image) break;
    co_await judge_client(*image, *given_up);
  }
  link.reset();
  if (!image) co_return;
  auto closed = co_await image->close(some_time());
  while (!closed && closed.error().code == errc::timed_out && given_up) {
    co_await judge_client(*image, *given_up);
    closed = co_await image->close(some_time());
  }
  if (!closed) log::warning("image.not_closed", {{"image", image->key().text()}, {"error", closed.error().text}});
}

/// Judges a client once at a time, because each question dials.
task<> Closes::judge_client(image::Image& image, const image::Access& as) {
  const std::string client = image.client();
  if (leaving_() || image.client_given_up() || !judging_.insert(client).second) co_return;
  const Until soon{clock_.now() + kJudgesAfter};
  const auto may = co_await ports_.clusters.may_serve_anew(as, image.key(), false, soon);
  const bool refused = !may && may.error().code == errc::unauthenticated;
  result<image::Hearing> hearing = image::Hearing::as_others;
  if (may) hearing = co_await image.hearing({}, soon);
  judging_.erase(client);
  const bool deaf = hearing && *hearing == image::Hearing::deaf;
  if (leaving_() ||
      !plan::never_answered({.refused = refused, .deaf = deaf, .needed = is_client_needed(client, volumes_)}))
    co_return;
  log::warning("client.given_up", {{"image", image.key().text()},
                                   {"client", client},
                                   {"cause", refused ? may.error().text
                                                     : "the cluster answers another client of its user " + as.user +
                                                           ", and not this one"}});
  ports_.clusters.retire_all(as);
  image.give_up_client();
}

}  // namespace corbd::volume
