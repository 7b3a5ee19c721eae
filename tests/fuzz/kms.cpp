// The KMS config is whatever an operator's ConfigMap holds, the wrapped key whatever an image's metadata holds, and an
// answer whatever a server says.
#include <cstdlib>

#include "corbd/kms/kms.hpp"
#include "vault.hpp"
#include "wrapped_key.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* id : {"a", "default"})
    if (const auto terms = kms::terms_of(text, id); !terms && terms.error().text.empty()) std::abort();
  for (const auto& complaint : kms::check_config(text))
    if (complaint.text.empty()) std::abort();
  http::Reply reply;
  for (const unsigned status : {200, 404, 500}) {
    reply.status = status;
    reply.body = text;
    for (const bool is_v2 : {false, true}) static_cast<void>(kms::vault::stored_in(reply, is_v2, "reading"));
    static_cast<void>(kms::vault::is_v2_in(reply, "secret/", "listing"));
    static_cast<void>(kms::vault::token_in(reply, "logging in"));
  }
  static_cast<void>(kms::parse_url(text));
  // Nobody guesses the tag of AES-GCM.
  if (kms::unwrap_key("volume", text, Secret("passphrase"))) std::abort();
  return 0;
}
