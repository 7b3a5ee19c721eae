// What the writers of corbd-writer write: blocks and sectors that know their place and their number.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace corbd::writer {

constexpr std::size_t block_size = 4096;
constexpr std::uint64_t magic = 0x636f726264777274;  // "corbdwrt"

template <std::size_t size>
struct alignas(size) Numbered {
  std::uint64_t magic, block, seq, sum;
  std::uint64_t body[(size - 32) / 8];
};
using Block = Numbered<block_size>;
static_assert(sizeof(Block) == block_size);

inline std::uint64_t mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <std::size_t size>
std::uint64_t checksum(const Numbered<size>& b) {
  std::uint64_t sum = b.magic ^ (b.block * 31) ^ (b.seq * 131);
  for (std::uint64_t word : b.body) sum = (sum ^ word) * 0x100000001b3;
  return sum;
}

template <std::size_t size>
void fill(Numbered<size>& b, std::uint64_t block, std::uint64_t seq) {
  b.magic = magic, b.block = block, b.seq = seq;
  std::uint64_t state = block * 0x2545f4914f6cdd1d + seq;
  for (std::uint64_t& word : b.body) word = mix(state);
  b.sum = checksum(b);
}

template <std::size_t size>
bool is_whole(const Numbered<size>& b, std::uint64_t block) {
  return b.magic == magic && b.block == block && b.sum == checksum(b);
}

inline std::uint64_t now_us() {
  using namespace std::chrono;
  return static_cast<std::uint64_t>(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
}

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "corbd-writer: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(2);
}

}  // namespace corbd::writer
