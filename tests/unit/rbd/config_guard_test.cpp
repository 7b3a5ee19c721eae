#include "config_guard.hpp"

#include "support/catch.hpp"

using namespace corbd;
using rbd::Option;
using Source = rbd::Option::Source;

namespace {
// What librbd 16 lists for a client that switched its cache off.
std::vector<Option> defaults() {
  return {{Source::client, "rbd_cache", "false"},
          {Source::client, "rbd_cache_policy", "writearound"},
          {Source::client, "rbd_cache_writethrough_until_flush", "true"},
          {Source::client, "rbd_persistent_cache_mode", "disabled"},
          {Source::client, "rbd_persistent_cache_path", "/tmp"},
          {Source::client, "rbd_plugins", ""},
          {Source::client, "rbd_blocklist_on_break_lock", "true"}};
}
}  // namespace

TEST_CASE("a client without any cache is safe") { CHECK_FALSE(rbd::unsafe(defaults(), true, "pool", "image")); }

TEST_CASE("a cache that acknowledges first is refused, whoever asks for it", "[rule:1]") {
  const auto [name, value] = GENERATE(table<std::string, std::string>({{"rbd_cache", "true"},
                                                                       {"rbd_cache", "1"},
                                                                       {"rbd_persistent_cache_mode", "ssd"},
                                                                       {"rbd_persistent_cache_mode", "rwl"},
                                                                       {"rbd_pwl_mode", "ssd"},
                                                                       {"rbd_rwl_enabled", "true"},
                                                                       {"rbd_plugins", "pwl_cache"}}));
  const Source source = GENERATE(Source::client, Source::pool, Source::image);
  auto options = defaults();
  options.push_back({source, name, value});
  const auto refused = rbd::unsafe(options, true, "pool/ns", "image");
  REQUIRE(refused);
  CHECK(refused->code == errc::unsafe_config);
  CHECK_THAT(refused->text, ContainsSubstring(name + "=" + value));
}

TEST_CASE("whoever is told to switch a cache off hears that a running rbd-nbd keeps it until it ends") {
  auto options = defaults();
  options.push_back({GENERATE(Source::pool, Source::image), "rbd_cache", "true"});
  CHECK_THAT(rbd::unsafe(options, true, "pool", "image")->text, ContainsSubstring("let the volume be unstaged"));
  options.back() = {Source::image, "rbd_blocklist_on_break_lock", "false"};
  CHECK_THAT(rbd::unsafe(options, true, "pool", "image")->text, !ContainsSubstring("be unstaged"));
}

TEST_CASE("an image whose metadata let a client write on after its lock was broken is refused", "[rule:2]") {
  const Source source = GENERATE(Source::pool, Source::image);
  auto options = defaults();
  options.push_back({source, "rbd_blocklist_on_break_lock", "false"});
  const auto refused = rbd::unsafe(options, true, "pool", "image");
  REQUIRE(refused);
  CHECK_THAT(refused->text, ContainsSubstring("rbd_blocklist_on_break_lock=false"));
  CHECK_THAT(refused->text, ContainsSubstring("rbd config pool remove") || ContainsSubstring("rbd image-meta remove"));
}

TEST_CASE("an option that lets a client write on after its lock was broken is not taken for a cache") {
  auto options = defaults();
  options.push_back({Source::image, "rbd_blocklist_on_break_lock", "false"});
  CHECK_FALSE(rbd::decides_cache(options, "pool", "image"));
  // unsafe_config would make the flushes of an adopted volume fail.
  CHECK(rbd::unsafe(options, true, "pool", "image")->code == errc::failed_precondition);
  options.push_back({Source::image, "rbd_cache", "true"});
  CHECK(rbd::unsafe(options, true, "pool", "image")->code == errc::unsafe_config);
}

TEST_CASE("what becomes of a broken lock decides nothing for an image without exclusive-lock, but a cache does") {
  auto options = defaults();
  options.push_back({Source::pool, "rbd_blocklist_on_break_lock", "false"});
  CHECK_FALSE(rbd::unsafe(options, false, "pool", "image"));
  options.push_back({Source::pool, "rbd_cache", "true"});
  CHECK(rbd::unsafe(options, false, "pool", "image"));
}

TEST_CASE("the refusal names the level and the command that removes it") {
  const auto text = [](Source source) {
    return rbd::unsafe({{source, "rbd_cache", "true"}}, true, "pool/ns", "image")->text;
  };
  CHECK_THAT(text(Source::image), ContainsSubstring("rbd image-meta remove pool/ns/image conf_rbd_cache"));
  CHECK_THAT(text(Source::pool), ContainsSubstring("rbd config pool remove pool/ns rbd_cache"));
  CHECK_THAT(text(Source::client), ContainsSubstring("ceph.conf"));
}

TEST_CASE("the metadata of an image or its pool decide over the cache of every client, the client's own options do not",
          "[failure:165]") {
  CHECK_FALSE(rbd::decides_cache(defaults(), "pool", "image"));
  const Source source = GENERATE(Source::pool, Source::image);
  const auto [name, value] = GENERATE(table<std::string, std::string>(
      {{"rbd_cache", "false"}, {"rbd_cache_policy", "writeback"}, {"rbd_cache_max_dirty", "1048576"}}));
  auto options = defaults();
  options.push_back({source, name, value});
  const auto refused = rbd::decides_cache(options, "pool", "image");
  REQUIRE(refused);
  CHECK(refused->code == errc::unsafe_config);
}

TEST_CASE("our own writes move an image's modify timestamp unless it is known that they do not", "[failure:160]") {
  const auto stamps = [](std::vector<Option> more) {
    auto options = defaults();
    options.insert(options.end(), more.begin(), more.end());
    return rbd::stamps_writes(options);
  };
  CHECK_FALSE(stamps({{Source::client, "rbd_mtime_update_interval", "0"}}));
  CHECK(stamps({{Source::image, "rbd_mtime_update_interval", "60"}}));
  CHECK(stamps({{Source::pool, "rbd_mtime_update_interval", "1"}}));
  CHECK(stamps({}));
}

TEST_CASE("librbd's cache acknowledges before the first flush only where its option says so", "[rule:1a]") {
  CHECK_FALSE(rbd::caches_before_flush(defaults()));
  CHECK_FALSE(rbd::caches_before_flush({}));
  CHECK(rbd::caches_before_flush({{Source::image, "rbd_cache_writethrough_until_flush", "false"}}));
}

TEST_CASE("the policy for reads is that of librbd's effective configuration") {
  using image::ReadPolicy;
  const std::string name = "rbd_read_from_replica_policy";
  CHECK(rbd::read_policy({}) == ReadPolicy::primary);
  CHECK(rbd::read_policy({{Source::client, name, "default"}}) == ReadPolicy::primary);
  CHECK(rbd::read_policy({{Source::pool, name, "balance"}}) == ReadPolicy::balance);
  CHECK(rbd::read_policy({{Source::image, name, "localize"}}) == ReadPolicy::localize);
}
