// The command line of corbd-writer, and its commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model.hpp"

namespace corbd::writer {

struct Options {
  std::string command, path, model, mode = "direct";
  std::vector<std::string> journals;
  std::uint64_t size = 0, first = 1;
  unsigned seconds = 0, threads = 4, paced = 0, pace_ms = 100;
  std::uint64_t seed = 1, requests = 0;
  Layout layout;
  std::vector<std::uint64_t> kills;
  const std::string& journal() const { return journals.front(); }
};

/// durable.cpp
int run(const Options& options);
int verify(const Options& options);
/// ordered.cpp
int run_ordered(const Options& options);
int check_ordered(const Options& options);
/// modelled.cpp
int run_modelled(const Options& options);
int check_modelled(const Options& options);

}  // namespace corbd::writer
