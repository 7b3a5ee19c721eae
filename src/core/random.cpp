#include "corbd/core/random.hpp"

#include <random>

namespace corbd {

double random() {
  static thread_local std::mt19937_64 engine{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(engine);
}

}  // namespace corbd
