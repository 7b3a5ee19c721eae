#include "aws.hpp"

#include <algorithm>
#include <array>

#include "corbd/core/base64.hpp"
#include "corbd/core/secret_json.hpp"
#include "corbd/core/text.hpp"
#include "json_answer.hpp"
#include "section.hpp"
#include "service.hpp"
#include "sigv4.hpp"

namespace corbd::kms::aws {
namespace {

namespace json = boost::json;

/// The name under which ceph-csi takes a role: the role's trust policy may require it, and CloudTrail shows it.
constexpr std::string_view kRoleSession = "ceph-csi-aws-sts-metadata";
/// Path of the pod's projected volume with the audience ceph-csi-kms.
constexpr const char* kOidcToken = "/run/secrets/tokens/oidc-token";
constexpr const char* kDefaultSecret = "ceph-csi-aws-credentials";

/// Credentials for AWS KMS, and its key that wraps.
struct AwsKms {
  AwsCredentials credentials;
  std::string region, key;
  std::string where;  ///< see Credentials::where
};

bool is_region(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

Error no_region(const std::string& of) {
  return {errc::failed_precondition, of + " is no region of AWS, such as us-east-1: correct it"};
}

/// Maps the names of AWS's errors, because the status does not tell them apart. KMS answers most of them with 400.
errc aws_code(std::string_view name, unsigned status) {
  struct Row {
    std::string_view name;
    errc code;
  };
  constexpr std::array rows{
      Row{"AccessDeniedException", errc::permission_denied},
      Row{"AccessDenied", errc::permission_denied},
      Row{"UnrecognizedClientException", errc::unauthenticated},
      Row{"InvalidSignatureException", errc::unauthenticated},
      Row{"IncompleteSignatureException", errc::unauthenticated},
      Row{"MissingAuthenticationTokenException", errc::unauthenticated},
      Row{"ExpiredTokenException", errc::unauthenticated},
      Row{"InvalidIdentityToken", errc::unauthenticated},
      Row{"ThrottlingException", errc::unavailable},
      Row{"Throttling", errc::unavailable},
      Row{"IDPCommunicationError", errc::unavailable},
  };
  const auto* found = std::ranges::find(rows, name, &Row::name);
  return found == rows.end() ? refusal_code(status) : found->code;
}

http::Message post_to(const http::Peer& peer, std::string type, std::string body) {
  http::Message message;
  message.method = "POST";
  message.target = "/";
  // AWS signs Host without the port.
  message.headers = {{"Host", peer.host}, {"Content-Type", std::move(type)}};
  message.body = std::move(body);
  message.limit = kAnswerBytes;
  return message;
}

/// Decodes the base64 of `member` in KMS's answer.
result<Secret> kms_answer(const http::Reply& reply, const std::string& member, const Call& call) {
  if (reply.status == 200) {
    const auto text = json_text(reply.body, {member});
    auto found = text ? from_base64(text->reveal()) : std::nullopt;
    if (!found || found->empty()) return wrong_shape(call);
    return Secret(std::move(*found));
  }
  // The name is "com.amazonaws.kms#NotFoundException", or only the part after the #.
  std::string name = words_at(reply.body, {"__type"});
  name.erase(0, name.rfind('#') + 1);
  const std::string said = error_text(name, words_at(reply.body, {"message"}) + words_at(reply.body, {"Message"}));
  if (name == "InvalidCiphertextException" || name == "IncorrectKeyException") return wrapped_elsewhere(call, said);
  return refusal(call, aws_code(name, reply.status), reply.status, said);
}

task<result<Secret>> ask_aws(Transport& transport, KeyCall ask, AwsKms kms, std::string operation, json::object body,
                             std::string member, std::string doing) {
  http::Peer peer;
  peer.host = host_of("kms", kms.region);
  auto message = post_to(peer, "application/x-amz-json-1.1", serialize_secret(body));
  wipe(body);
  message.headers.emplace_back("X-Amz-Target", "TrentService." + operation);
  sign_v4(message, kms.credentials, kms.region, "kms", transport.now());
  auto reply = co_await transport.http(peer, std::move(message), ask.until);
  if (!reply) co_return with_context(doing, reply.error());
  co_return co_await transport.read(std::move(*reply), ask.until, kms_answer, member,
                                    call_of(ask, doing, peer, kms.where));
}

task<result<Secret>> unwrap_by(Transport& transport, KeyCall ask, AwsKms kms, std::string wrapped) {
  const std::string doing = about(ask, "unwrapping");
  const auto blob = from_base64(trimmed(wrapped));
  if (!blob || blob->empty())
    co_return Error{errc::state_corrupt, doing +
                                             ": what the image's metadata has is not base64, as ceph-csi writes it "
                                             "with AWS KMS; nothing was changed"};
  // Leave out KeyId, as ceph-csi does: AWS finds its key by the blob, also after the config names another one.
  json::object body{{"CiphertextBlob", to_base64(*blob)}};
  co_return co_await ask_aws(transport, ask, std::move(kms), "Decrypt", std::move(body), "Plaintext", doing);
}

task<result<std::string>> wrap_by(Transport& transport, KeyCall ask, AwsKms kms, Secret key) {
  const std::string doing = about(ask, "wrapping");
  const Secret plain(to_base64(key.reveal()));
  json::object body{{"KeyId", kms.key}, {"Plaintext", json_view(plain)}};
  const auto blob =
      co_await ask_aws(transport, ask, std::move(kms), "Encrypt", std::move(body), "CiphertextBlob", doing);
  if (!blob) co_return blob.error();
  co_return to_base64(blob->reveal());
}

// --- aws-metadata

task<result<AwsKms>> with_access_key(Transport& transport, KeyCall ask, std::string doing) {
  const auto region = needed_option(ask.section, "AWS_REGION", ask.kms_id);
  if (!region) co_return region.error();
  const auto own = co_await own_credentials(transport, ask, "KMS_SECRET_NAME", kDefaultSecret, doing);
  if (!own) co_return own.error();
  const auto id = own->need("AWS_ACCESS_KEY_ID", doing);
  if (!id) co_return id.error();
  auto secret = own->need("AWS_SECRET_ACCESS_KEY", doing);
  if (!secret) co_return secret.error();
  const auto key = own->need("AWS_CMK_ARN", doing);
  if (!key) co_return key.error();
  AwsCredentials credentials{std::string(id->reveal()), std::move(*secret), own->get("AWS_SESSION_TOKEN")};
  co_return AwsKms{std::move(credentials), *region, std::string(key->reveal()), own->where};
}

// --- aws-sts-metadata

/// Returns the text of the first such element.
Secret element(std::string_view xml, const std::string& name) {
  const std::string begin = "<" + name + ">", end = "</" + name + ">";
  const auto from = xml.find(begin);
  const auto to = from == xml.npos ? from : xml.find(end, from);
  if (to == xml.npos) return {};
  return Secret(std::string(xml.substr(from + begin.size(), to - from - begin.size())));
}

result<AwsCredentials> role_answer(const http::Reply& reply, const Call& call) {
  if (reply.status != 200) {
    const std::string name(element(reply.body, "Code").reveal());
    const std::string said = error_text(name, element(reply.body, "Message").reveal());
    return refusal(call, aws_code(name, reply.status), reply.status, said);
  }
  AwsCredentials credentials{std::string(element(reply.body, "AccessKeyId").reveal()),
                             element(reply.body, "SecretAccessKey"), element(reply.body, "SessionToken")};
  if (credentials.key_id.empty() || credentials.secret_key.empty() || credentials.session_token.empty())
    return wrong_shape(call);
  return credentials;
}

task<result<AwsCredentials>> assume_role(Transport& transport, KeyCall ask, std::string role, std::string region,
                                         std::string where, std::string doing) {
  const auto token = co_await transport.file(kOidcToken, ask.until);
  if (!token)
    co_return Error{errc::failed_precondition, doing + ": reading the pod's OIDC token: " + token.error().text +
                                                   ": mount a projected token with the audience ceph-csi-kms there"};
  http::Peer peer;
  peer.host = host_of("sts", region);
  auto message = post_to(peer, "application/x-www-form-urlencoded; charset=utf-8",
                         form_encoded({{"Action", "AssumeRoleWithWebIdentity"},
                                       {"Version", "2011-06-15"},
                                       {"RoleArn", role},
                                       {"RoleSessionName", kRoleSession},
                                       {"WebIdentityToken", trimmed(token->reveal())}}));
  auto reply = co_await transport.http(peer, std::move(message), ask.until);
  if (!reply) co_return with_context(doing, reply.error());
  co_return co_await transport.read(std::move(*reply), ask.until, role_answer, call_of(ask, doing, peer, where));
}

task<result<AwsKms>> with_role(Transport& transport, KeyCall ask, std::string doing) {
  const auto name = text_option(ask.section, "secretName", ask.kms_id);
  if (!name) co_return name.error();
  if (ask.owner.tenant.empty())
    co_return Error{errc::failed_precondition,
                    doing +
                        ": the namespace of its claim, whose Secret names the role, is not known: only a volume of "
                        "a provisioner with --extra-create-metadata has it, or one with "
                        "csi.storage.k8s.io/pvc/namespace in its attributes"};
  const auto own =
      co_await read_credentials(transport, ask.owner.tenant, name->value_or(kDefaultSecret), doing, ask.until);
  if (!own) co_return own.error();
  const auto role = own->need("awsRoleARN", doing);
  if (!role) co_return role.error();
  const auto key = own->need("awsCMKARN", doing);
  if (!key) co_return key.error();
  const auto region = own->need("awsRegion", doing);
  if (!region) co_return region.error();
  const std::string in(region->reveal());
  if (!is_region(in)) co_return no_region(doing + ": awsRegion of " + own->where);
  auto credentials = co_await assume_role(transport, ask, std::string(role->reveal()), in, own->where, doing);
  if (!credentials) co_return credentials.error();
  co_return AwsKms{std::move(*credentials), in, std::string(key->reveal()), own->where};
}

}  // namespace

std::string host_of(std::string_view service, std::string_view region) {
  struct Partition {
    std::string_view regions, suffix;
  };
  constexpr std::array partitions{Partition{"cn-", "amazonaws.com.cn"},    Partition{"eusc-", "amazonaws.eu"},
                                  Partition{"us-iso-", "c2s.ic.gov"},      Partition{"us-isob-", "sc2s.sgov.gov"},
                                  Partition{"eu-isoe-", "cloud.adc-e.uk"}, Partition{"us-isof-", "csp.hci.ic.gov"}};
  const auto* found =
      std::ranges::find_if(partitions, [&](const Partition& one) { return region.starts_with(one.regions); });
  const std::string_view suffix = found == partitions.end() ? "amazonaws.com" : found->suffix;
  return std::string(service) + "." + std::string(region) + "." + std::string(suffix);
}

result<> check(const Section& section, const std::string& id) {
  const auto region = needed_option(section, "AWS_REGION", id);
  if (!region) return region.error();
  if (!is_region(*region)) return no_region("AWS_REGION of KMS \"" + id + "\"");
  if (const auto name = text_option(section, "KMS_SECRET_NAME", id); !name) return name.error();
  return {};
}

task<result<Secret>> unwrap(Transport& transport, KeyCall ask, std::string wrapped) {
  auto kms = co_await with_access_key(transport, ask, about(ask, "unwrapping"));
  if (!kms) co_return kms.error();
  co_return co_await unwrap_by(transport, ask, std::move(*kms), wrapped);
}

task<result<std::string>> wrap(Transport& transport, KeyCall ask, Secret key) {
  auto kms = co_await with_access_key(transport, ask, about(ask, "wrapping"));
  if (!kms) co_return kms.error();
  co_return co_await wrap_by(transport, ask, std::move(*kms), key);
}

result<> check_sts(const Section& section, const std::string& id) {
  if (const auto name = text_option(section, "secretName", id); !name) return name.error();
  return {};
}

task<result<Secret>> unwrap_sts(Transport& transport, KeyCall ask, std::string wrapped) {
  auto kms = co_await with_role(transport, ask, about(ask, "unwrapping"));
  if (!kms) co_return kms.error();
  co_return co_await unwrap_by(transport, ask, std::move(*kms), wrapped);
}

task<result<std::string>> wrap_sts(Transport& transport, KeyCall ask, Secret key) {
  auto kms = co_await with_role(transport, ask, about(ask, "wrapping"));
  if (!kms) co_return kms.error();
  co_return co_await wrap_by(transport, ask, std::move(*kms), key);
}

}  // namespace corbd::kms::aws
