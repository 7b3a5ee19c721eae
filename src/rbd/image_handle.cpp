#include "image_handle.hpp"

#include <vector>

#include "failure.hpp"
#include "locks.hpp"
#include "mirror.hpp"

namespace corbd::rbd {
namespace {

std::string read_name(rbd_image_t image) {
  std::string name(256, '\0');
  std::size_t length = name.size();
  int r = rbd_get_name(image, name.data(), &length);
  if (r == -ERANGE) {
    name.resize(length);
    r = rbd_get_name(image, name.data(), &length);
  }
  return r < 0 ? std::string("?") : std::string(name.c_str());
}

result<std::vector<Option>> read_options(rbd_image_t image) {
  std::vector<rbd_config_option_t> raw(256);
  int count = static_cast<int>(raw.size());
  int r = rbd_config_image_list(image, raw.data(), &count);
  if (r == -ERANGE) {
    raw.resize(static_cast<std::size_t>(count));
    r = rbd_config_image_list(image, raw.data(), &count);
  }
  if (r < 0) return failure("reading the effective configuration", r);
  std::vector<Option> options;
  for (int i = 0; i < count; ++i) {
    const auto& one = raw[static_cast<std::size_t>(i)];
    const auto source = one.source == RBD_CONFIG_SOURCE_IMAGE  ? Option::Source::image
                        : one.source == RBD_CONFIG_SOURCE_POOL ? Option::Source::pool
                                                               : Option::Source::client;
    options.push_back({source, one.name, one.value});
  }
  rbd_config_image_list_cleanup(raw.data(), count);
  return options;
}

}  // namespace

result<Details> read_details(const ImageHandle& opened, bool with_lockers) {
  Details details;
  if (const int r = opened.connection.observe_result(rbd_get_size(opened.image, &details.size)); r < 0)
    return failure("reading the image's size", r);
  if (const int r = opened.connection.observe_result(rbd_get_features(opened.image, &details.features.bits)); r < 0)
    return failure("reading the image's features", r);
  if (const int r = opened.connection.observe_result(rbd_get_op_features(opened.image, &details.features.operations));
      r < 0)
    return failure("reading the features of the image's operations", r);
  details.name = read_name(opened.image);
  auto options = read_options(opened.image);
  if (!options) return options.error();
  const bool exclusive_lock = (details.features.bits & RBD_FEATURE_EXCLUSIVE_LOCK) != 0;
  details.unsafe = unsafe(*options, exclusive_lock, opened.pool.text, details.name);
  details.decides_cache = decides_cache(*options, opened.pool.text, details.name);
  details.stamps_writes = stamps_writes(*options);
  details.caches_before_flush = caches_before_flush(*options);
  details.read_policy = read_policy(*options);
  if (!with_lockers) return details;
  auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  details.lockers = std::move(*lockers);
  return details;
}

std::optional<Error> why_refused(const Details& details, Purpose purpose, const std::string& name) {
  if (purpose.writes && details.unsafe) return details.unsafe;
  if (details.secondary)
    return Error{errc::failed_precondition,
                 "image " + name + " mirrors another cluster's image: the agent serves it once it is primary here (" +
                     "rbd mirror image promote " + name + ")"};
  auto features = details.features;
  if (purpose.despite_dirty_cache) features.bits &= ~image::kDirtyCache;
  return image::refuse(features, purpose.writes, "image " + name);
}

result<Details> look_at(const ImageHandle& opened, Purpose purpose, bool with_lockers) {
  auto details = read_details(opened, with_lockers);
  if (!details) return details;
  // Nobody tells a reader's handle that the header has changed.
  if (opened.read_only) {
    const auto header = look_at_header(opened.connection, opened.key);
    if (!header) return header.error();
    details->features = header->features;
  }
  const auto secondary = is_secondary(opened);
  if (!secondary) return details;
  details->secondary = *secondary;
  const auto why = why_refused(*details, purpose, opened.text());
  details->refused = why ? why->text : "";
  return details;
}

}  // namespace corbd::rbd
