// The node's topology for NodeGetInfo: ceph-csi's segments from labels of the node (docs/sources.md#topology). Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::csi {

using Labels = std::map<std::string, std::string>;

/// Parses "a/b=value,c/d=value". invalid_argument names the part.
result<Labels> parse_labels(std::string_view text);

/// Checks the list. invalid_argument: the driver's name is too long for it, a label is named twice, or two labels end
/// alike.
result<> check_domain_labels(std::string_view driver, std::string_view domain_labels);

/// Returns "topology.<driver, in lower case>/<name behind the first slash>" = the label's value, for each of
/// `domain_labels` ("a/b,c/d"). invalid_argument as in check_domain_labels(); failed_precondition: the node lacks the
/// label.
result<Labels> topology_of(std::string_view driver, std::string_view domain_labels, const Labels& node_labels);

}  // namespace corbd::csi
