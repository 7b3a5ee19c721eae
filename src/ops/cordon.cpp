#include "corbd/ops/cordon.hpp"

#include <boost/json/serialize.hpp>

#include "corbd/core/fields_json.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/utc.hpp"

namespace corbd::ops {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostBytes = 256;
constexpr std::chrono::seconds kRemoveWithin{5};
constexpr std::chrono::hours kRenewAfter{1};
constexpr std::int64_t kLatestMs = 9'000'000'000'000;  // in the year 2255; the clock's nanoseconds end in 2262

}  // namespace

std::string Cordoned::text() const {
  return since ? utc_text(*since) + " (until " + utc_text(*since + kCordonFor) + ")"
               : "a time that its file does not tell";
}

bool still_cordoned(const Cordoned& cordoned, std::chrono::system_clock::time_point now) {
  return !cordoned.since || now - *cordoned.since < kCordonFor;
}

std::string cordon_json(std::chrono::system_clock::time_point since) {
  return boost::json::serialize(boost::json::object{
             {"drained_at_ms", std::chrono::duration_cast<milliseconds>(since.time_since_epoch()).count()}}) +
         "\n";
}

Cordoned read_cordon(std::string_view text) {
  const auto object = fields::parse(text, "drain");
  const auto* at = object ? object->if_contains("drained_at_ms") : nullptr;
  if (at == nullptr || !at->is_int64() || at->get_int64() < 0 || at->get_int64() > kLatestMs) return {};
  return {std::chrono::system_clock::time_point(milliseconds(at->get_int64()))};
}

Cordon::Cordon(executor control, Clock& clock, BlockingPool& pool, const std::string& state_dir)
    : clock_(clock),
      pool_(pool),
      path_(state_dir + "/drained.json"),
      lock_(std::move(control), clock, "the file of the drain") {}

task<> Cordon::load() {
  // Wait for a disk that is slow while the node boots, as for the records on it: slowness says nothing about a cordon.
  const auto text = co_await pool_.run([path = path_] { return read_file(path, kMostBytes); }, {}, "reading " + path_);
  if (!text && text.error().code == errc::not_found) co_return;
  const Cordoned found = text ? read_cordon(*text) : Cordoned();
  if (still_cordoned(found, clock_.wall())) {
    now_ = found;
    log::warning("agent.cordoned", {{"begun", found.text()},
                                    {"error", text ? std::string() : text.error().text},
                                    {"effect", "no new volume is staged"},
                                    {"hint", "corbd drain --undo"}});
    co_return;
  }
  log::warning("agent.cordon_expired",
               {{"begun", found.text()}, {"hint", "a drain counts for a week; repeat `corbd drain` to prolong it"}});
  const auto removed = co_await pool_.run([path = path_] { return remove_durably(path); },
                                          {clock_.now() + kRemoveWithin}, "removing " + path_);
  if (!removed) log::warning("agent.cordon_not_removed", {{"error", removed.error().text}});
}

task<result<>> Cordon::set(bool on, Until until) {
  const auto guard = co_await lock_.lock(until);
  if (!guard) co_return guard.error();
  const auto since = clock_.wall();
  // A caller that waits for a drain repeats its call all the time.
  const bool fresh = now_ && now_->since && since - *now_->since < kRenewAfter;
  if (on ? fresh : !now_) co_return result<>();
  // Wait for the end, so that the disk agrees with the memory.
  auto written = co_await pool_.run(
      [path = path_, text = on ? cordon_json(since) : std::string()] {
        return text.empty() ? remove_durably(path) : write_durably(path, text, 0600);
      },
      {}, "writing " + path_);
  if (!written) co_return with_context("remembering the drain", written.error());
  now_ = on ? std::optional(Cordoned{since}) : std::nullopt;
  co_return result<>();
}

}  // namespace corbd::ops
