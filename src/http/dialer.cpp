#include <netdb.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <resolv.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>

#include "dial.hpp"

namespace corbd::http {
namespace {

namespace ssl = asio::ssl;

/// After this time the system's authorities are read again, so an administrator's change takes effect.
constexpr std::chrono::minutes kContextLives{5};
/// Limit of contexts in use: a KMS has one for each of its tenants.
constexpr std::size_t kContexts = 64;
/// Time-out of a name server in seconds, and number of tries: a lost packet is repeated before the caller leaves.
constexpr int kServerAnswers = 2, kAskedAgain = 2;

/// Returns SHA-256 of a context's inputs, so that the table does not hold the private key itself.
std::string fingerprint(const Peer& peer) {
  std::string parts;
  for (const std::string_view part : {std::string_view(peer.authorities), std::string_view(peer.certificate),
                                      peer.key.reveal(), std::string_view(peer.tls13 ? "1.3" : "1.2")})
    parts += std::to_string(part.size()) + ":" + std::string(part);
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned length = 0;
  ::EVP_Digest(parts.data(), parts.size(), reinterpret_cast<unsigned char*>(digest.data()), &length, ::EVP_sha256(),
               nullptr);
  wipe(parts);
  digest.resize(length);
  return digest;
}

/// Limits the work that the server can impose on this thread: only groups and key exchanges whose cost is small and
/// fixed. Go's clients, ceph-csi's among them, never offered finite-field Diffie-Hellman either.
bool bound_the_server(::SSL_CTX* context) {
  constexpr int links_of_a_chain = 8;
  constexpr std::size_t bytes_of_a_chain = 64 << 10;
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CLEANSE_PLAINTEXT);
  ::SSL_CTX_set_verify_depth(context, links_of_a_chain);
  ::SSL_CTX_set_max_cert_list(context, bytes_of_a_chain);
  return ::SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES") == 1 &&
         // OpenSSL in FIPS mode has no X25519, and refuses a list with it.
         (::SSL_CTX_set1_groups_list(context, "X25519:P-256:P-384:P-521") == 1 ||
          ::SSL_CTX_set1_groups_list(context, "P-256:P-384:P-521") == 1);
}

}  // namespace

result<Context> make_context(const Peer& peer) {
  auto made = std::make_shared<ssl::context>(ssl::context::tls_client);
  boost::system::error_code failed;
  made->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, failed);
  if (peer.tls13) made->set_options(ssl::context::no_tlsv1_2, failed);
  if (!bound_the_server(made->native_handle()))
    return Error{errc::internal, "OpenSSL knows none of the ciphers or groups for " + peer.text()};
  if (!peer.authorities.empty()) {
    made->add_certificate_authority(asio::buffer(peer.authorities), failed);
    // Every given certificate is trusted, as in Go, and not only a self-signed one.
    ::X509_VERIFY_PARAM_set_flags(::SSL_CTX_get0_param(made->native_handle()), X509_V_FLAG_PARTIAL_CHAIN);
  } else {
    made->set_default_verify_paths(failed);
  }
  if (failed)
    return Error{errc::invalid_argument,
                 "the authorities for " + peer.text() + " are not PEM certificates: " + failed.message()};
  if (!peer.certificate.empty()) {
    made->use_certificate_chain(asio::buffer(peer.certificate), failed);
    if (!failed) made->use_private_key(asio::buffer(peer.key.reveal()), ssl::context::pem, failed);
    if (failed)
      return Error{errc::invalid_argument,
                   "the client certificate for " + peer.text() + ", or its key, cannot be used: " + failed.message()};
  }
  return made;
}

result<std::vector<std::string>> Dialer::system_look_up(const std::string& host) {
  // This affects only this thread. It also reads resolv.conf again.
  if (::res_init() == 0) {
    _res.retrans = std::min(_res.retrans, kServerAnswers);
    _res.retry = std::min(_res.retry, kAskedAgain);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int r = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (r != 0) return Error{errc::unavailable, "looking up " + host + ": " + ::gai_strerror(r)};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, &::freeaddrinfo);
  std::vector<std::string> all;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    endpoint.resize(one->ai_addrlen);
    all.push_back(endpoint.address().to_string());
  }
  return all;
}

task<result<Addresses>> Dialer::Impl::find(std::shared_ptr<Impl> self, std::string host, std::string share,
                                           Until until) {
  const std::string doing = "looking up " + host;
  while (!self->names_asked_.contains(host) && self->shares_[share].asking >= kLookUpsOfAShare) {
    auto& mine = self->shares_[share];
    if (!mine.one_ended) mine.one_ended = std::make_shared<Event>(self->control_, self->clock_);
    const auto one_ended = mine.one_ended;
    const Waited waited = co_await one_ended->wait(until);
    if (waited != Waited::ready)
      co_return wait_error(waited, doing + ", for the resolver has not answered the last questions yet");
  }
  if (!self->names_asked_.contains(host)) self->start_look_up(host, share);
  const auto question = self->names_asked_.at(host);
  const Waited waited = co_await question->ended.wait(until);
  if (waited != Waited::ready) co_return wait_error(waited, doing);
  co_return *question->answer;
}

void Dialer::Impl::start_look_up(const std::string& host, const std::string& share) {
  const auto question = std::make_shared<Question<Addresses>>(control_, clock_);
  names_asked_.emplace(host, question);
  ++shares_[share].asking;
  names_.post([weak = weak_from_this(), control = control_, look_up = look_up_, question, host, share] {
    asio::post(control, [weak, question, host, share, found = look_up(host)] {
      question->answer.emplace(found);
      if (const auto self = weak.lock()) {
        self->names_asked_.erase(host);
        self->ended(share);
      }
      question->ended.set();
    });
  });
}

void Dialer::Impl::ended(const std::string& share) {
  const auto one = shares_.find(share);
  --one->second.asking;
  if (const auto waits = std::exchange(one->second.one_ended, nullptr)) waits->set();
  if (one->second.asking == 0) shares_.erase(one);
}

void Dialer::Impl::keep(const std::string& key, Context context) {
  if (contexts_.size() >= kContexts)
    contexts_.erase(std::ranges::min_element(contexts_, {}, [](const auto& one) { return one.second.at; }));
  contexts_.insert_or_assign(key, Made{std::move(context), clock_.now()});
}

task<result<Context>> Dialer::Impl::context(std::shared_ptr<Impl> self, Peer peer, Until until) {
  const std::string key = fingerprint(peer);
  const auto known = self->contexts_.find(key);
  if (known != self->contexts_.end() && self->clock_.now() - known->second.at < kContextLives)
    co_return known->second.context;
  if (self->files_ == nullptr) {
    auto made = make_context(peer);
    if (made) self->keep(key, *made);
    co_return made;
  }
  const auto asked = self->contexts_asked_.find(key);
  auto question = asked == self->contexts_asked_.end() ? nullptr : asked->second;
  if (!question) {
    question = std::make_shared<Question<Context>>(self->control_, self->clock_);
    self->contexts_asked_.emplace(key, question);
    self->files_->post([weak = std::weak_ptr(self), control = self->control_, question, key, of = peer] {
      asio::post(control, [weak, question, key, made = make_context(of)] {
        question->answer.emplace(made);
        if (const auto alive = weak.lock()) {
          alive->contexts_asked_.erase(key);
          if (made) alive->keep(key, *made);
        }
        question->ended.set();
      });
    });
  }
  const Waited waited = co_await question->ended.wait(until);
  if (waited != Waited::ready) co_return wait_error(waited, "reading the authorities for " + peer.text());
  co_return *question->answer;
}

Dialer::Dialer(executor control, Clock& clock, BlockingPool& names, BlockingPool* files, LookUp look_up)
    : impl_(std::make_shared<Impl>(std::move(control), clock, names, files, std::move(look_up))) {}
Dialer::~Dialer() = default;

}  // namespace corbd::http
