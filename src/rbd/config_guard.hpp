// Checks that an image's effective configuration keeps rules 1 and 2.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/image/values.hpp"

namespace corbd::rbd {

/// An effective option of an open image, as rbd_config_image_list returns it.
struct Option {
  enum class Source { client, pool, image } source = Source::client;
  std::string name, value;
};

/// unsafe_config if an option puts a cache between the client and the cluster that acknowledges before the cluster
/// does. failed_precondition if the image has `exclusive_lock`, and an option lets a client whose lock is broken write
/// on. Image and pool metadata override the client's own settings (seen), so the text names the level and the command
/// that removes the option. `pool` is as in commands, with the namespace. `image` is the image's name.
std::optional<Error> unsafe(const std::vector<Option>& options, bool exclusive_lock, std::string_view pool,
                            std::string_view image);

/// unsafe_config if metadata of the image or its pool decide whether a client has a cache, or if the configuration of
/// all clients may. A client's own command line then proves nothing.
std::optional<Error> decides_cache(const std::vector<Option>& options, std::string_view pool, std::string_view image);

/// Implements image::Image::caches_before_flush().
bool caches_before_flush(const std::vector<Option>& options);

/// Implements image::Image::read_policy().
image::ReadPolicy read_policy(const std::vector<Option>& options);

/// Whether our own writes set the image's modify timestamp, although connect.cpp switches that off.
bool stamps_writes(const std::vector<Option>& options);

}  // namespace corbd::rbd
