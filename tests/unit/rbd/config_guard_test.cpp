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
          {Source::client, "rbd_plugins", ""}};
}
}  // namespace

TEST_CASE("a client without any cache is safe") { CHECK_FALSE(rbd::unsafe(defaults(), "pool", "image")); }

TEST_CASE("a cache that acknowledges first is refused, whoever asks for it") {
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
  const auto refused = rbd::unsafe(options, "pool/ns", "image");
  REQUIRE(refused);
  CHECK(refused->code == errc::unsafe_config);
  CHECK_THAT(refused->text, ContainsSubstring(name + "=" + value));
}

TEST_CASE("the refusal names the level and the command that removes it") {
  const auto text = [](Source source) {
    return rbd::unsafe({{source, "rbd_cache", "true"}}, "pool/ns", "image")->text;
  };
  CHECK_THAT(text(Source::image), ContainsSubstring("rbd image-meta remove pool/ns/image conf_rbd_cache"));
  CHECK_THAT(text(Source::pool), ContainsSubstring("rbd config pool remove pool/ns rbd_cache"));
  CHECK_THAT(text(Source::client), ContainsSubstring("ceph.conf"));
}
