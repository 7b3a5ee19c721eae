#include "transport.hpp"

#include <algorithm>

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"

namespace corbd::kms {
namespace {

constexpr std::size_t kMaxSmallFile = 1 << 20, kKmipHeader = 8;
/// Threads for look-ups. Each server takes a share of http::kLookUpsOfAShare.
constexpr std::size_t kNameThreads = 16;
constexpr std::chrono::seconds kKubernetesAnswers{10};

bool is_worth_a_repeat(const result<http::Reply>& reply) {
  if (!reply) return reply.error().code == errc::unavailable;
  return reply->status == 429 || reply->status >= 500;
}

/// Returns an error if the server is silent. Nothing: it answered. An error of one request alone (500), or of too many
/// requests (429), proves nothing about the next.
std::optional<Error> silence(const result<http::Reply>& reply) {
  if (!reply && (reply.error().code == errc::unavailable || reply.error().code == errc::timed_out))
    return reply.error();
  if (!reply || reply->status < 502 || reply->status > 504) return std::nullopt;
  return Error{errc::unavailable, "it answered " + std::to_string(reply->status)};
}

/// Returns the length of the whole frame, as far as it has come.
std::size_t kmip_length(std::string_view so_far) {
  if (so_far.size() < kKmipHeader) return kKmipHeader;
  std::size_t length = 0;
  for (const unsigned char byte : so_far.substr(4, 4)) length = length << 8 | byte;
  return kKmipHeader + length;
}

class NoKubernetes final : public Kubernetes {
 public:
  task<result<std::map<std::string, Secret>>> secret(std::string, std::string, Until) override { co_return none(); }
  task<result<std::map<std::string, std::string>>> config_map(std::string, std::string, Until) override {
    co_return none();
  }
  task<result<Secret>> account_token(std::string, std::string, std::vector<std::string>, Until) override {
    co_return none();
  }

 private:
  static Error none() {
    return {errc::failed_precondition,
            "this agent knows no API server, which has the Secrets of this KMS: run it in a pod, or set "
            "KUBERNETES_CONFIG_PATH"};
  }
};

/// Wipes a body. The client wipes the copies that it gets.
class WipedBody {
 public:
  explicit WipedBody(http::Message& message) : message_(message) {}
  ~WipedBody() { wipe(message_.body); }
  WipedBody(const WipedBody&) = delete;
  WipedBody& operator=(const WipedBody&) = delete;

 private:
  http::Message& message_;
};

class RealTransport final : public Transport {
 public:
  RealTransport(KmsContext& around, Asker asker) : context_(around), asker_(std::move(asker)) {}

  task<result<Unread>> http(http::Peer peer, http::Message message, Until until) override {
    auto turn = context_.breakers.begin(server_of(peer));
    if (!turn) {
      wipe(message.body);
      co_return turn.error();
    }
    until = until.at_most(context_.clock.now() + context_.patience.whole);
    connect_to(peer);
    bool open = false;
    auto reply = co_await ask_until_answered(std::move(message), until, open);
    judge(*turn, reply);
    // A caller takes a refusal for the end of its request.
    const bool refused =
        reply ? reply->status / 100 != 2 && !is_worth_a_repeat(reply) : final_for_caller(reply.error().code);
    if (open && refused)
      co_return Error{errc::unavailable,
                      server(peer) +
                          (reply ? " answered " + std::to_string(reply->status) : ": " + reply.error().text) +
                          ", and an earlier try of the same request may still take effect"};
    if (reply) co_return Unread(std::move(*reply));
    co_return with_context(server(peer), reply.error());
  }

  task<result<std::string>> exchange(http::Peer peer, std::string request, std::size_t limit, Until until) override {
    auto turn = context_.breakers.begin(server_of(peer));
    if (!turn) co_return turn.error();
    until = until.at_most(context_.clock.now() + context_.patience.whole);
    connect_to(peer);
    auto answer = co_await client_->exchange(std::move(request), kmip_length, limit, until);
    judge(*turn, answer ? http::Reply() : result<http::Reply>(answer.error()));
    if (answer) co_return answer;
    co_return with_context(server(peer), answer.error());
  }

  task<result<std::map<std::string, Secret>>> secret(std::string name_space, std::string name, Until until) override {
    return context_.api().secret(std::move(name_space), std::move(name), soon(until));
  }
  task<result<std::map<std::string, std::string>>> config_map(std::string name_space, std::string name,
                                                              Until until) override {
    return context_.api().config_map(std::move(name_space), std::move(name), soon(until));
  }
  task<result<Secret>> account_token(std::string name_space, std::string service_account,
                                     std::vector<std::string> audiences, Until until) override {
    return context_.api().account_token(std::move(name_space), std::move(service_account), std::move(audiences),
                                        soon(until));
  }
  task<result<Secret>> file(std::string path, Until until) override {
    auto job = [path]() -> result<Secret> {
      auto text = read_file(path, kMaxSmallFile);
      if (!text) return text.error();
      return Secret(std::move(*text));
    };
    return context_.files.run(std::move(job), until, "reading " + path);
  }
  std::string own_namespace() const override { return context_.own_namespace; }
  std::chrono::system_clock::time_point now() const override { return context_.clock.wall(); }

 private:
  task<result<>> run_elsewhere(std::function<void()> job, std::string what, Until until) override {
    auto ran = [job = std::move(job)]() -> result<> {
      job();
      return {};
    };
    return context_.files.run(std::move(ran), until, std::move(what));
  }
  static void judge(Breakers::Turn& turn, const result<http::Reply>& reply) {
    if (!reply && reply.error().code == errc::cancelled) return;
    if (const auto why = silence(reply))
      turn.unanswered(*why);
    else
      turn.answered();
  }
  std::string server(const http::Peer& peer) const {
    return "KMS \"" + printable(asker_.kms_id) + "\" at " + peer.text();
  }
  std::string server_of(const http::Peer& peer) const {
    return server(peer) + (asker_.tenant.empty() ? "" : " of tenant " + printable(asker_.tenant));
  }
  Until soon(Until until) const { return until.at_most(context_.clock.now() + kKubernetesAnswers); }

  /// Connects once: a request asks its server several times, one after the other.
  void connect_to(const http::Peer& peer) {
    if (client_ && client_->peer() == peer) return;
    if (!context_.names)
      context_.names = std::make_unique<BlockingPool>(context_.control, context_.clock, kNameThreads);
    if (!context_.dialer)
      context_.dialer =
          std::make_unique<http::Dialer>(context_.control, context_.clock, *context_.names, &context_.files);
    client_ = std::make_unique<http::Client>(context_.control, context_.clock, *context_.dialer,
                                             asker_.kms_id + "/" + asker_.tenant, peer, context_.patience.timing);
  }

  /// `open`: a try that changes something had no answer, or one after which it may still take effect.
  task<result<http::Reply>> ask_until_answered(http::Message message, Until until, bool& open) {
    const WipedBody wiped(message);
    for (int tries = 1;; ++tries) {
      auto reply = co_await client_->call(message, until);
      if (!is_worth_a_repeat(reply) || tries == context_.patience.tries) co_return reply;
      open |= message.method != "GET" && (!reply || reply->status != 429);
      duration wait = context_.patience.between.after(static_cast<std::uint32_t>(tries - 1), uniform());
      if (reply && reply->retry_after) wait = *reply->retry_after;
      // There is no time for another answer: this one says more than a deadline.
      if (context_.clock.now() + wait >= until.deadline) co_return reply;
      const auto waited =
          co_await sleep_until(context_.control, context_.clock, context_.clock.now() + wait, until.scope);
      if (waited == Waited::cancelled) co_return wait_error(waited, "asking a KMS again");
    }
  }

  KmsContext& context_;
  const Asker asker_;
  std::unique_ptr<http::Client> client_;
};

}  // namespace

Kubernetes& KmsContext::api() {
  static NoKubernetes none;
  return kubernetes == nullptr ? none : *kubernetes;
}

result<Breakers::Turn> Breakers::begin(const std::string& server) {
  const auto now = clock_.now();
  auto& state = states_[server];
  if (!state.breaker.allows(now)) {
    const auto next = state.breaker.next(now);
    std::string when = "it is being asked again now";
    if (next != time_point::max())
      when =
          "it is asked again in " + std::to_string(std::chrono::ceil<std::chrono::seconds>(next - now).count()) + " s";
    return Error{errc::unavailable, server + " does not answer, and " + when + ": " + state.why};
  }
  state.breaker.began();
  return Turn(*this, server);
}

void Breakers::forget(std::map<std::string, State>::iterator one) {
  if (!one->second.breaker.open() && one->second.breaker.idle()) states_.erase(one);
  if (states_.size() <= kMost) return;
  // Do not forget one that a call is using.
  const auto since = [](const auto& entry) {
    return entry.second.breaker.idle() ? entry.second.since : time_point::max();
  };
  const auto oldest = std::ranges::min_element(states_, {}, since);
  if (oldest->second.breaker.idle()) states_.erase(oldest);
}

Breakers::Turn::~Turn() {
  if (breakers_ == nullptr) return;
  const auto one = breakers_->states_.find(server_);
  one->second.breaker.unasked();
  breakers_->forget(one);
}

void Breakers::Turn::answered() {
  Breakers& all = *std::exchange(breakers_, nullptr);
  const auto one = all.states_.find(server_);
  if (one->second.breaker.open()) log::info("kms.answers", {{"server", server_}});
  one->second.breaker.answered();
  all.forget(one);
}

void Breakers::Turn::unanswered(const Error& why) {
  Breakers& all = *std::exchange(breakers_, nullptr);
  const auto one = all.states_.find(server_);
  if (!one->second.breaker.open()) {
    one->second.since = all.clock_.now();
    log::warning("kms.silent", {{"server", server_},
                                {"error", why.text},
                                {"effect", "volumes whose keys it has cannot be staged until it answers"}});
  }
  one->second.breaker.unanswered(all.clock_.now(), uniform());
  one->second.why = why.text;
  all.forget(one);
}

std::unique_ptr<Transport> make_transport(KmsContext& context, Asker asker) {
  return std::make_unique<RealTransport>(context, std::move(asker));
}

}  // namespace corbd::kms
