// The agent's side of LUKS: each call becomes one request of a helper. Passphrases are in its body, which nobody logs.
#include <boost/json/value.hpp>

#include "corbd/host/helpers.hpp"
#include "requests.hpp"

namespace corbd::host {
namespace {

namespace json = boost::json;

/// argon2 beside others on a slow machine, over a slow cluster.
constexpr std::chrono::seconds kLuksPatience{120};
/// Writing 8 TiB at 100 MB/s.
constexpr std::chrono::hours kWipePatience{24};

HelperRequest luks_request(std::string what, json::object body, HelperOwner owner) {
  return {std::move(what), std::move(body), std::move(owner), kLuksPatience};
}

class HelperLuks final : public Luks {
 public:
  explicit HelperLuks(HelperPool& helpers) : helpers_(helpers) {}

  task<result<LuksHeader>> look(std::string device, HelperOwner owner, Until until) override {
    json::object body{{"op", "luks_look"}, {"device", device}};
    const auto reply =
        co_await helpers_.call(luks_request("look for LUKS on " + device, std::move(body), std::move(owner)), until);
    if (!reply) co_return reply.error();
    co_return luks_header_from_json(*reply);
  }
  task<result<>> format(std::string device, LuksFormat how, Secret passphrase, HelperOwner owner,
                        Until until) override {
    json::object body{{"op", "luks_format"},        {"device", device},
                      {"cipher", how.cipher},       {"key_bits", how.key_bits},
                      {"integrity", how.integrity}, {"sector_bytes", how.sector_bytes},
                      {"mapping", how.mapping},     {"passphrase", in_base64(passphrase).reveal()}};
    auto request = luks_request("luksFormat " + device, std::move(body), std::move(owner));
    if (!how.integrity.empty()) request.report_after = kWipePatience;
    const auto reply = co_await helpers_.call(std::move(request), until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }
  task<result<>> open(std::string device, std::string mapping, Secret passphrase, bool read_only, HelperOwner owner,
                      Until until) override {
    json::object body{{"op", "luks_open"},
                      {"device", device},
                      {"mapping", mapping},
                      {"passphrase", in_base64(passphrase).reveal()},
                      {"read_only", read_only}};
    return perform("luksOpen " + device, std::move(body), std::move(owner), until);
  }
  task<result<>> resize(std::string mapping, HelperOwner owner, Until until) override {
    json::object body{{"op", "luks_resize"}, {"mapping", mapping}};
    return perform("resize " + mapping, std::move(body), std::move(owner), until);
  }
  task<result<>> close(std::string mapping, HelperOwner owner, Until until) override {
    json::object body{{"op", "luks_close"}, {"mapping", mapping}};
    return perform("luksClose " + mapping, std::move(body), std::move(owner), until);
  }
  task<result<bool>> opens(std::string device, int slot, Secret passphrase, HelperOwner owner, Until until) override {
    json::object body{
        {"op", "luks_opens"}, {"device", device}, {"slot", slot}, {"passphrase", in_base64(passphrase).reveal()}};
    const auto reply =
        co_await helpers_.call(luks_request("try a LUKS key of " + device, std::move(body), std::move(owner)), until);
    if (!reply) co_return reply.error();
    const auto* opens = reply->if_contains("opens");
    if (opens == nullptr || !opens->is_bool())
      co_return Error{errc::internal, "the helper's reply about a LUKS key is not understood"};
    co_return opens->get_bool();
  }
  task<result<>> add_key(std::string device, int slot, Secret known, Secret added, HelperOwner owner,
                         Until until) override {
    json::object body{{"op", "luks_add_key"},
                      {"device", device},
                      {"slot", slot},
                      {"known", in_base64(known).reveal()},
                      {"added", in_base64(added).reveal()}};
    return perform("luksAddKey " + device, std::move(body), std::move(owner), until);
  }
  task<result<>> remove_key(std::string device, int slot, HelperOwner owner, Until until) override {
    json::object body{{"op", "luks_remove_key"}, {"device", device}, {"slot", slot}};
    return perform("luksKillSlot " + device, std::move(body), std::move(owner), until);
  }

 private:
  task<result<>> perform(std::string what, json::object body, HelperOwner owner, Until until) {
    const auto reply = co_await helpers_.call(luks_request(std::move(what), std::move(body), std::move(owner)), until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }
  HelperPool& helpers_;
};

}  // namespace

std::unique_ptr<Luks> make_luks(HelperPool& helpers) { return std::make_unique<HelperLuks>(helpers); }

}  // namespace corbd::host
