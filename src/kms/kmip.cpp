#include "kmip.hpp"

#include <openssl/rand.h>

#include "corbd/core/text.hpp"
#include "section.hpp"
#include "service.hpp"
#include "ttlv.hpp"
#include "wrapped_key.hpp"

namespace corbd::kms::kmip {
namespace {

constexpr std::size_t kCbcNonceBytes = 16;

/// A KMIP server's credentials, and its key that wraps.
struct Kmip {
  http::Peer peer;
  std::string key_id;
  bool server_encrypts = true;  ///< USE_CRYPTO_RPC; otherwise the server hands out its key
  Call call;
};

/// Parses "host:port".
std::optional<http::Peer> kmip_peer(const std::string& endpoint) {
  auto url = parse_url("https://" + endpoint);
  const auto colon = endpoint.rfind(':');
  const bool has_port = colon != endpoint.npos && endpoint.find(']', colon) == endpoint.npos;
  if (!url || !url->path.empty() || !has_port) return std::nullopt;
  return std::move(url->peer);
}

struct KmipSettings {
  http::Peer peer;
  bool server_encrypts = true;
};

result<KmipSettings> kmip_settings(const Section& section, const std::string& id) {
  const auto wrong = [&](const std::string& text) {
    return Error{errc::failed_precondition, "KMS \"" + id + "\": " + text + ": correct it in the KMS config"};
  };
  const auto endpoint = needed_option(section, "KMIP_ENDPOINT", id);
  if (!endpoint) return endpoint.error();
  auto peer = kmip_peer(*endpoint);
  if (!peer) return wrong("KMIP_ENDPOINT is not HOST:PORT, such as kmip.example:5696");
  const auto rpc = text_option(section, "USE_CRYPTO_RPC", id);
  if (!rpc) return rpc.error();
  const auto encrypts = *rpc ? parse_bool(**rpc) : std::optional<bool>(true);
  if (!encrypts) return wrong("USE_CRYPTO_RPC is neither \"true\" nor \"false\"");
  const auto name = text_option(section, "TLS_SERVER_NAME", id);
  if (!name) return name.error();
  peer->name = name->value_or("");
  const auto version = text_option(section, "TLS_MIN_VERSION", id);
  if (!version) return version.error();
  const std::string least = version->value_or("");
  if (!least.empty() && least != "1.2" && least != "1.3")
    return wrong("TLS_MIN_VERSION is neither \"1.2\" nor \"1.3\"");
  peer->tls13 = least == "1.3";
  return KmipSettings{std::move(*peer), *encrypts};
}

task<result<Kmip>> reach_kmip(Transport& transport, KeyCall ask, std::string doing) {
  auto settings = kmip_settings(ask.section, ask.kms_id);
  if (!settings) co_return settings.error();
  const auto own = co_await own_credentials(transport, ask, "KMIP_SECRET_NAME", "ceph-csi-kmip-credentials", doing);
  if (!own) co_return own.error();
  const auto authorities = own->need("CA_CERT", doing);
  if (!authorities) co_return authorities.error();
  const auto certificate = own->need("CLIENT_CERT", doing);
  if (!certificate) co_return certificate.error();
  auto key = own->need("CLIENT_KEY", doing);
  if (!key) co_return key.error();
  const auto key_id = own->need("UNIQUE_IDENTIFIER", doing);
  if (!key_id) co_return key_id.error();
  Kmip kmip{settings->peer, std::string(key_id->reveal()), settings->server_encrypts,
            call_of(ask, doing, settings->peer, own->where)};
  kmip.peer.authorities = std::string(authorities->reveal());
  kmip.peer.certificate = std::string(certificate->reveal());
  kmip.peer.key = std::move(*key);
  co_return kmip;
}

/// Returns the items of the answer's payload.
task<result<Secret>> ask_kmip(Transport& transport, Kmip kmip, KmipOperation operation, std::string payload,
                              Until until) {
  auto answer = co_await transport.exchange(kmip.peer, request_of(operation, payload), kAnswerBytes, until);
  wipe(payload);
  if (!answer) co_return with_context(kmip.call.doing, answer.error());
  const auto found = payload_of(*answer, kmip.call);
  result<Secret> items = found ? result<Secret>(Secret(std::string(*found))) : found.error();
  wipe(*answer);
  co_return items;
}

/// Returns the bytes at that path of a payload.
result<Secret> bytes_at(const Secret& items, std::initializer_list<TtlvTag> path, const Call& call) {
  const auto found = find_ttlv(items.reveal(), path);
  if (!found || found->type != TtlvType::bytes || found->value.empty()) return wrong_shape(call);
  return Secret(std::string(found->value));
}

std::string key_name(const Kmip& kmip) { return ttlv(TtlvTag::unique_identifier, TtlvType::text, kmip.key_id); }

/// Makes the payload of Encrypt and of Decrypt: AES-CBC with PKCS#5's padding.
std::string cbc_payload(const Kmip& kmip, std::string_view data, std::string_view nonce) {
  constexpr std::uint32_t cbc = 1, pkcs5 = 3, aes = 3;
  return key_name(kmip) +
         ttlv(TtlvTag::cryptographic_parameters, TtlvType::structure,
              ttlv(TtlvTag::block_cipher_mode, TtlvType::enumeration, cbc) +
                  ttlv(TtlvTag::padding_method, TtlvType::enumeration, pkcs5) +
                  ttlv(TtlvTag::cryptographic_algorithm, TtlvType::enumeration, aes)) +
         ttlv(TtlvTag::data, TtlvType::bytes, data) + ttlv(TtlvTag::iv_counter_nonce, TtlvType::bytes, nonce);
}

/// Fetches the key itself, because IBM GKLM does not encrypt with it.
task<result<Secret>> fetch_kmip_key(Transport& transport, Kmip kmip, Until until) {
  const auto items = co_await ask_kmip(transport, kmip, KmipOperation::get, key_name(kmip), until);
  if (!items) co_return items.error();
  co_return bytes_at(*items, {TtlvTag::symmetric_key, TtlvTag::key_block, TtlvTag::key_value, TtlvTag::key_material},
                     kmip.call);
}

}  // namespace

std::string request_of(KmipOperation operation, std::string_view payload) {
  const std::string version = ttlv(TtlvTag::protocol_version_major, TtlvType::integer, 1) +
                              ttlv(TtlvTag::protocol_version_minor, TtlvType::integer, 4);
  const std::string header =
      ttlv(TtlvTag::protocol_version, TtlvType::structure, version) + ttlv(TtlvTag::batch_count, TtlvType::integer, 1);
  const std::string item = ttlv(TtlvTag::operation, TtlvType::enumeration, static_cast<std::uint32_t>(operation)) +
                           ttlv(TtlvTag::request_payload, TtlvType::structure, payload);
  return ttlv(TtlvTag::request_message, TtlvType::structure,
              ttlv(TtlvTag::request_header, TtlvType::structure, header) +
                  ttlv(TtlvTag::batch_item, TtlvType::structure, item));
}

result<std::string_view> payload_of(std::string_view message, const Call& call) {
  const auto item = find_ttlv(message, {TtlvTag::response_message, TtlvTag::batch_item});
  const auto status = item ? find_ttlv(item->value, {TtlvTag::result_status}) : std::nullopt;
  if (!status || !status->number()) return wrong_shape(call);
  if (*status->number() == 0) {
    const auto payload = find_ttlv(item->value, {TtlvTag::response_payload});
    if (!payload || payload->type != TtlvType::structure) return wrong_shape(call);
    return payload->value;
  }
  const auto reason = find_ttlv(item->value, {TtlvTag::result_reason});
  const auto text = find_ttlv(item->value, {TtlvTag::result_message});
  const std::uint32_t number = reason ? reason->number().value_or(0) : 0;
  const std::string said = text ? printable(text->value) : "without a message";
  constexpr std::uint32_t not_authenticated = 3, cryptographic_failure = 0x0a, permission_denied = 0x0c;
  const bool unknown = number == not_authenticated || number == cryptographic_failure;
  const errc code = unknown                       ? errc::unauthenticated
                    : number == permission_denied ? errc::permission_denied
                                                  : errc::failed_precondition;
  return Error{code, call.doing + ": " + call.server + " refused it with KMIP's reason " + std::to_string(number) +
                         " (" + said +
                         "): check there the key that UNIQUE_IDENTIFIER names, and what this client may do with it"};
}

result<> check(const Section& section, const std::string& id) {
  if (const auto settings = kmip_settings(section, id); !settings) return settings.error();
  if (const auto name = text_option(section, "KMIP_SECRET_NAME", id); !name) return name.error();
  return {};
}

task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped) {
  const std::string doing = about(ask, "unwrapping");
  const auto from = parse_wrapped_key(wrapped);
  if (!from) co_return with_context(doing, from.error());
  const auto kmip = co_await reach_kmip(transport, ask, doing);
  if (!kmip) co_return kmip.error();
  if (kmip->server_encrypts) {
    const auto items = co_await ask_kmip(transport, *kmip, KmipOperation::decrypt,
                                         cbc_payload(*kmip, from->dek, from->nonce), ask.until);
    if (!items) co_return items.error();
    co_return bytes_at(*items, {TtlvTag::data}, kmip->call);
  }
  const auto with = co_await fetch_kmip_key(transport, *kmip, ask.until);
  if (!with) co_return with.error();
  auto opened = open_key(*from, *with);
  if (!opened) co_return with_context(doing, opened.error());
  co_return std::move(*opened);
}

task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key) {
  const std::string doing = about(ask, "wrapping");
  const auto kmip = co_await reach_kmip(transport, ask, doing);
  if (!kmip) co_return kmip.error();
  if (kmip->server_encrypts) {
    std::string nonce(kCbcNonceBytes, '\0');
    if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), kCbcNonceBytes) != 1)
      co_return Error{errc::internal, doing + ": OpenSSL has no random bytes"};
    const auto items =
        co_await ask_kmip(transport, *kmip, KmipOperation::encrypt, cbc_payload(*kmip, key.reveal(), nonce), ask.until);
    if (!items) co_return items.error();
    const auto dek = bytes_at(*items, {TtlvTag::data}, kmip->call);
    if (!dek) co_return dek.error();
    co_return text_of(WrappedKey{std::string(dek->reveal()), nonce});
  }
  const auto with = co_await fetch_kmip_key(transport, *kmip, ask.until);
  if (!with) co_return with.error();
  const auto sealed = seal_key(key, *with);
  if (!sealed) co_return with_context(doing, sealed.error());
  co_return text_of(*sealed);
}

}  // namespace corbd::kms::kmip
