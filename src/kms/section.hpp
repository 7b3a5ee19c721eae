// Reads a section of the KMS config as ceph-csi does. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "corbd/http/client.hpp"
#include "types.hpp"

namespace corbd::kms {

/// Works like ceph-csi's setConfigString: nothing if the key is missing; failed_precondition if its value is no text.
/// `id`: the KMS's, for error texts.
result<std::optional<std::string>> text_option(const Section& section, std::string_view key, const std::string& id);
/// Requires the key: failed_precondition names it if it is missing or empty.
result<std::string> needed_option(const Section& section, std::string_view key, const std::string& id);

/// Works like Go's strconv.ParseBool; nothing for any other text.
std::optional<bool> parse_bool(std::string_view text);

/// "https://host:8200/path", parsed.
struct Url {
  http::Peer peer;
  std::string path;  ///< without a slash at its end; empty: none
};
/// Returns nothing if it is no such text.
std::optional<Url> parse_url(std::string_view text);

}  // namespace corbd::kms
