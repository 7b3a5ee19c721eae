#include "sigv4.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <map>

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/core/utc.hpp"

namespace corbd::kms {
namespace {

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), digest.data(), &length);
  return {reinterpret_cast<const char*>(digest.data()), length};
}

Secret signing_key(const Secret& secret_key, std::string_view day, std::string_view region, std::string_view service) {
  Secret key("AWS4" + std::string(secret_key.reveal()));
  for (const std::string_view part : {day, region, service, std::string_view("aws4_request")})
    key = Secret(hmac_sha256(key.reveal(), part));
  return key;
}

}  // namespace

void sign_v4(http::Message& message, const AwsCredentials& credentials, const std::string& region,
             const std::string& service, std::chrono::system_clock::time_point now) {
  std::string at = utc_text(now);
  std::erase_if(at, [](char c) { return c == '-' || c == ':'; });
  message.headers.emplace_back("X-Amz-Date", at);
  if (!credentials.session_token.empty())
    message.headers.emplace_back("X-Amz-Security-Token", std::string(credentials.session_token.reveal()));
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : message.headers) sorted.emplace(lower(name), value);
  std::string headers, names;
  for (const auto& [name, value] : sorted) {
    headers += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string request = message.method + "\n/\n\n" + headers + "\n" + names + "\n" + sha256_hex(message.body);
  const std::string day = at.substr(0, 8);
  const std::string scope = day + "/" + region + "/" + service + "/aws4_request";
  const Secret key = signing_key(credentials.secret_key, day, region, service);
  const std::string signature =
      hex(hmac_sha256(key.reveal(), "AWS4-HMAC-SHA256\n" + at + "\n" + scope + "\n" + sha256_hex(request)));
  message.headers.emplace_back("Authorization", "AWS4-HMAC-SHA256 Credential=" + credentials.key_id + "/" + scope +
                                                    ", SignedHeaders=" + names + ", Signature=" + signature);
}

}  // namespace corbd::kms
