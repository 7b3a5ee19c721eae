#include "corbd/kube/api.hpp"

#include <boost/json/serialize.hpp>

#include "corbd/core/text.hpp"
#include "fields.hpp"
#include "wire.hpp"

namespace corbd::kube {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kTokenFor{60};    // kubelet rotates it long before its end
constexpr std::chrono::seconds kWatchGrace{30};  // time that a watch may last beyond its timeout
constexpr std::size_t kPage = 500, kMostPages = 200;
constexpr std::size_t kObjectBytes = 4 << 20, kPageBytes = 64 << 20;  // a server keeps no object of more than 1.5 MiB
constexpr const char* kJson = "application/json";

std::string query(const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string out;
  for (const auto& [name, value] : parts)
    if (!value.empty()) out += (out.empty() ? "?" : "&") + name + "=" + percent_encoded(value);
  return out;
}

/// Another program's answer, such as a proxy's `{}` with status 200, means neither an absent object nor an empty list.
ApiError not_asked_for(const Resource& resource, const std::string& what) {
  return api_error({errc::unavailable, "the API server answered " + resource.path + " with " + what +
                                           ": look at what is between this node and the API server"});
}

http::Message patch_of(const Resource& resource, const std::string& name, const char* type, std::string body) {
  http::Message message;
  message.method = "PATCH";
  message.target = resource.path + "/" + percent_encoded(name);
  message.headers.emplace_back("Content-Type", type);
  message.body = std::move(body);
  return message;
}

constexpr std::string_view kNamed = "metadata.name=";

/// The object may be a Secret, and only this wipes it if the caller has left before it was read.
struct Read {
  explicit Read(json::object made) : object(std::move(made)) {}
  Read(Read&&) noexcept = default;
  Read& operator=(Read&&) = delete;
  ~Read() { wipe(object); }
  json::object object;
};

}  // namespace

std::string named(const std::string& name) { return std::string(kNamed) + name; }

class Api::Impl {
 public:
  Impl(executor control, Clock& clock, BlockingPool& names, BlockingPool& files, Access access, http::Timing timing)
      : clock_(clock),
        files_(files),
        access_(std::move(access)),
        client_(std::move(control), clock, names, {}, timing) {}

  task<answer<json::object>> ask(http::Message message, Verb verb, Until until);
  task<answer<>> watch(http::Message message, Verb verb, std::function<bool(Change)> on_change, Until until);
  std::optional<std::chrono::milliseconds> ahead() const { return ahead_; }
  task<result<>> look(duration fresh, Until until);

 private:
  /// Adds the token. The first time, and after failures, it also reads the files of the connection, and the kubeconfig
  /// that names them.
  result<> prepare(http::Message& message);
  /// Whether the server refused the authorities, the certificate or the token. They may have been replaced since they
  /// were read, so prepare() then reads them again.
  bool is_stale(const result<http::Reply>& reply);
  task<answer<http::Reply>> send(http::Message message, http::Sink sink, Verb verb, Until until);
  task<answer<http::Reply>> exchange(http::Message message, http::Sink sink, Verb verb, Until until);
  /// Reads on another thread: tenants write objects, which may take long to parse. The caller may have left by then,
  /// and the client may be gone, so `reader` has copies of all that it uses.
  template <class Reader>
  auto read_elsewhere(Reader reader, const std::string& target, Until until) {
    return files_.run(std::move(reader), until, "reading the API server's answer to " + target);
  }

  Clock& clock_;
  BlockingPool& files_;
  Access access_;
  http::Client client_;
  bool met_ = false;
  bool refused_ = false;  ///< the server refused the credentials; a kubeconfig is read again
  Secret token_;
  std::optional<time_point> token_read_;
  std::optional<time_point> answered_;  ///< time of the last 2xx
  std::optional<std::chrono::milliseconds> ahead_;
};

result<> Api::Impl::prepare(http::Message& message) {
  if (refused_ && !access_.kubeconfig.empty()) {
    auto access = read_kubeconfig(access_.kubeconfig);
    if (!access) return access.error();
    access_ = std::move(*access);
    met_ = refused_ = false;
    token_read_.reset();
  }
  if (!met_) {
    auto peer = peer_of(access_);
    if (!peer) return peer.error();
    client_.set_peer(std::move(*peer));
    met_ = true;
  }
  if (!token_read_ || clock_.now() - *token_read_ >= kTokenFor) {
    auto token = read_token(access_);
    // The old token may still be valid for a while.
    if (!token && token_.empty()) return token.error();
    if (token) token_ = std::move(*token);
    token_read_ = clock_.now();
  }
  message.bearer = token_;
  return {};
}

task<answer<http::Reply>> Api::Impl::send(http::Message message, http::Sink sink, Verb verb, Until until) {
  auto reply = co_await exchange(std::move(message), std::move(sink), std::move(verb), until);
  if (reply) answered_ = clock_.now();
  co_return reply;
}

task<result<>> Api::Impl::look(duration fresh, Until until) {
  if (answered_ && clock_.now() - *answered_ < fresh) co_return result<>();
  http::Message message;
  message.target = "/version";
  message.limit = kObjectBytes;
  const auto reply = co_await send(std::move(message), nullptr, {"get", "/version"}, until);
  if (!reply) {
    const auto& error = reply.error().error;
    if (error.code != errc::permission_denied) co_return error;
  }
  answered_ = clock_.now();
  co_return result<>();
}

bool Api::Impl::is_stale(const result<http::Reply>& reply) {
  const bool authority = !reply && reply.error().code == errc::unauthenticated;
  const bool token = reply && reply->status == 401;
  if (token) token_read_.reset();
  // The server may no longer accept the certificate.
  if (authority || (token && !access_.certificate_file.empty())) met_ = false;
  // Values in a kubeconfig itself are as old as any of these.
  if (authority || token) refused_ = true;
  return authority || token;
}

task<answer<http::Reply>> Api::Impl::exchange(http::Message message, http::Sink sink, Verb verb, Until until) {
  for (bool again = false;; again = true) {
    // A missing credentials file must not look like a missing object.
    if (auto prepared = prepare(message); !prepared) co_return api_error({errc::unavailable, prepared.error().text});
    auto reply = co_await client_.call(message, until, sink);
    if (is_stale(reply) && !again) continue;
    if (!reply) {
      // No answer came, so an earlier one proves nothing any more.
      if (reply.error().code != errc::cancelled) answered_.reset();
      co_return api_error(reply.error());
    }
    if (reply->status / 100 == 2) co_return std::move(*reply);
    auto reader = [refusal = std::move(*reply), verb, target = message.target]() -> result<ApiError> {
      return api_error(refusal.status, refusal.body, refusal.retry_after, verb, target);
    };
    auto failure = co_await read_elsewhere(std::move(reader), message.target, until);
    co_return failure ? std::move(*failure) : api_error(failure.error());
  }
}

task<answer<json::object>> Api::Impl::ask(http::Message message, Verb verb, Until until) {
  message.headers.emplace_back("Accept", kJson);
  const std::string target = message.target;
  auto reply = co_await send(std::move(message), nullptr, std::move(verb), until);
  if (!reply) co_return reply.error();
  ahead_.reset();
  if (reply->date) ahead_ = std::chrono::floor<std::chrono::milliseconds>(*reply->date - clock_.wall());
  auto reader = [body = Secret(std::move(reply->body)), target]() -> result<Read> {
    auto parsed = parse_object(body.reveal(), target);
    if (!parsed) return parsed.error();
    return Read(std::move(*parsed));
  };
  auto read = co_await read_elsewhere(std::move(reader), target, until);
  if (!read) co_return api_error(read.error());
  co_return std::move(read->object);
}

task<answer<>> Api::Impl::watch(http::Message message, Verb verb, std::function<bool(Change)> on_change, Until until) {
  message.headers.emplace_back("Accept", kJson);
  Lines lines(kObjectBytes);
  std::optional<ApiError> told;
  auto take = [&](std::string_view line) {
    auto read = read_line(line, verb, message.target);
    if (read.failure) told = std::move(read.failure);
    return !told && (!read.change || on_change(std::move(*read.change)));
  };
  bool enough = false;
  auto sink = [&](std::string_view piece) {
    auto fed = lines.feed(piece, [&](std::string_view line) {
      enough = !take(line);
      return !enough;
    });
    if (!fed) told = api_error(fed.error());
    return fed && !enough;
  };
  const auto reply = co_await send(message, sink, verb, until);
  if (told) co_return std::move(*told);
  if (!reply) co_return reply.error();
  if (!enough && !lines.empty())
    co_return api_error(
        {errc::io, "the API server ended a watch of " + message.target + " in the middle of an object"});
  co_return answer<>();
}

Api::Api(executor control, Clock& clock, BlockingPool& names, BlockingPool& files, Access access, http::Timing timing)
    : impl_(std::make_unique<Impl>(std::move(control), clock, names, files, std::move(access), timing)) {}
Api::~Api() = default;

task<answer<json::object>> Api::get(Resource resource, std::string name, Until until) {
  http::Message message;
  message.limit = kObjectBytes;
  message.target = resource.path + "/" + percent_encoded(name);
  auto object = co_await impl_->ask(std::move(message), {"get", resource.rbac, name}, until);
  if (!object || text(*object, "metadata", "name") == name) co_return object;
  co_return not_asked_for(resource, "an object other than " + name);
}

task<answer<Listed>> Api::list(Resource resource, std::string selector, std::string version, Until until) {
  Listed all;
  auto keep = [&all](json::object item) { all.items.push_back(std::move(item)); };
  const auto listed = co_await each(std::move(resource), std::move(selector), std::move(version), kPage, keep, until);
  if (!listed) co_return listed.error();
  all.version = *listed;
  co_return all;
}

task<answer<std::string>> Api::each(Resource resource, std::string selector, std::string version, std::size_t page,
                                    std::function<void(json::object)> take, Until until) {
  std::string next;
  for (std::size_t pages = 0; pages < kMostPages; ++pages) {
    http::Message message;
    message.limit = selector.starts_with(kNamed) ? kObjectBytes : kPageBytes;
    // With a continuation, the version is that of the continued list.
    message.target = resource.path + query({{"fieldSelector", selector},
                                            {"resourceVersion", next.empty() ? version : ""},
                                            {"limit", std::to_string(page)},
                                            {"continue", next}});
    auto read = co_await impl_->ask(std::move(message), {"list", resource.rbac}, until);
    if (!read) co_return read.error();
    auto* items = read->if_contains("items");
    if (items == nullptr || !(items->is_array() || items->is_null()) || read->if_contains("metadata") == nullptr)
      co_return not_asked_for(resource, "something that is not a list");
    if (items->is_array())
      for (auto& item : items->get_array())
        if (item.is_object()) take(std::move(item.get_object()));
    next = text(*read, "metadata", "continue");
    if (next.empty()) co_return text(*read, "metadata", "resourceVersion");
  }
  co_return api_error({errc::exhausted, "the API server's list of " + resource.path + " does not end after " +
                                            std::to_string(kMostPages) + " pages"});
}

task<answer<>> Api::watch(Resource resource, std::string selector, std::string version, std::chrono::seconds timeout,
                          bool initial, std::function<bool(Change)> on_change, Until until) {
  http::Message message;
  message.target = resource.path + query({{"watch", "1"},
                                          {"fieldSelector", selector},
                                          {"resourceVersion", version},
                                          {"allowWatchBookmarks", "true"},
                                          {"timeoutSeconds", std::to_string(timeout.count())},
                                          {"sendInitialEvents", initial ? "true" : ""},
                                          {"resourceVersionMatch", initial ? "NotOlderThan" : ""}});
  message.idle = timeout + kWatchGrace;
  co_return co_await impl_->watch(std::move(message), {"watch", resource.rbac}, std::move(on_change), until);
}

task<answer<json::object>> Api::create(Resource resource, json::object body, Until until) {
  http::Message message;
  message.method = "POST";
  message.target = resource.path;
  message.headers.emplace_back("Content-Type", kJson);
  message.body = json::serialize(body);
  co_return co_await impl_->ask(std::move(message), {"create", resource.rbac}, until);
}

task<answer<json::object>> Api::patch(Resource resource, std::string name, json::object body, Until until) {
  auto message = patch_of(resource, name, "application/strategic-merge-patch+json", json::serialize(body));
  co_return co_await impl_->ask(std::move(message), {"patch", resource.rbac, name}, until);
}

task<answer<json::object>> Api::json_patch(Resource resource, std::string name, json::array operations, Until until) {
  auto message = patch_of(resource, name, "application/json-patch+json", json::serialize(operations));
  co_return co_await impl_->ask(std::move(message), {"patch", resource.rbac, name}, until);
}

task<result<>> Api::look(duration fresh, Until until) { return impl_->look(fresh, until); }

std::optional<std::chrono::milliseconds> Api::ahead() const { return impl_->ahead(); }

}  // namespace corbd::kube
