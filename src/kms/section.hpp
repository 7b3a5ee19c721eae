// How ceph-csi reads a section of the KMS config. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "corbd/http/client.hpp"
#include "types.hpp"

namespace corbd::kms {

/// ceph-csi's setConfigString: nothing if the key is not there; failed_precondition if it has no text. `id`: the KMS's,
/// for the text.
result<std::optional<std::string>> text_option(const Section& section, std::string_view key, const std::string& id);
/// The same where the key is missing or empty: failed_precondition names it.
result<std::string> needed_option(const Section& section, std::string_view key, const std::string& id);

/// Go's strconv.ParseBool; nothing for any other text.
std::optional<bool> parse_bool(std::string_view text);

/// "https://host:8200/path"
struct Url {
  http::Peer peer;
  std::string path;  ///< without a slash at its end; empty: none
};
/// Nothing if it is no such text.
std::optional<Url> parse_url(std::string_view text);

}  // namespace corbd::kms
