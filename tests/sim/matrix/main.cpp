// Plays cells of the matrix, prints what differs from the table, and counts:
//   matrix [PART/PARTS] [--event NAME]   all cells, or every PARTS-th
//   matrix --cell N [--event NAME]       one cell, with the agent's log
//   matrix --cells                       prints each cell as a line of JSON
//   matrix --page                        prints the table of docs/serving.md
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "corbd/core/log.hpp"
#include "play.hpp"

namespace {

using namespace corbd::matrix;
using corbd::plan::NotServed;

void print_page() {
  std::printf("| combination | when | error | what it says |\n| --- | --- | --- | --- |\n");
  for (const auto* row : corbd::plan::all_not_served())
    std::printf("| %s | %s | `%s` | %s |\n", std::string(row->combination).c_str(),
                std::string(name(row->moment)).c_str(), std::string(corbd::name(row->code)).c_str(),
                std::string(row->why).c_str());
}

struct Count {
  int cells = 0, served = 0, refused = 0, histories = 0, broken = 0;
};

/// The wrong ones of a kind are told once, with their number.
void tell(const std::map<std::string, std::vector<std::string>>& found) {
  for (const auto& [what, where] : found) {
    std::printf("BROKEN %zu times: %s\n", where.size(), what.c_str());
    constexpr std::size_t shown = 3;
    for (std::size_t at = 0; at < where.size() && at < shown; ++at) std::printf("  %s\n", where[at].c_str());
  }
}

bool wanted(Event event, const char* only) { return only == nullptr || name(event) == only; }

int play_all(const std::vector<Cell>& cells, std::size_t first, std::size_t step, const char* only) {
  Count count;
  std::map<std::string, std::vector<std::string>> found;
  const auto began = std::chrono::steady_clock::now();
  const auto play_one = [&](std::size_t at, Event event) {
    ++count.histories;
    const auto wrong = play(cells[at], event);
    if (wrong.empty()) return;
    ++count.broken;
    found[wrong.front()].push_back("--cell " + std::to_string(at) + " --event " + std::string(name(event)) + ": " +
                                   text(cells[at]));
  };
  for (std::size_t at = first; at < cells.size(); at += step) {
    ++count.cells;
    if (corbd::plan::find_not_served(NotServed::Moment::stage, combination_of(cells[at])) != nullptr) {
      ++count.refused;
      if (wanted(Event::stage, only)) play_one(at, Event::stage);
      continue;
    }
    ++count.served;
    for (const Event event : kEvents)
      if (wanted(event, only) && can_happen(cells[at], event)) play_one(at, event);
  }
  tell(found);
  std::printf("%d cells of %zu, %d served, %d refused; %d histories, %d broken, %.1f s\n", count.cells, cells.size(),
              count.served, count.refused, count.histories, count.broken,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return count.broken == 0 ? 0 : 1;
}

int play_one(const Cell& cell, const char* only) {
  const bool served = corbd::plan::find_not_served(NotServed::Moment::stage, combination_of(cell)) == nullptr;
  std::printf("%s\n", json(cell).c_str());
  int broken = 0;
  const auto tell_of = [&](Event event) {
    if (!wanted(event, only)) return;
    for (const auto& wrong : play(cell, event)) {
      ++broken;
      std::printf("%s: %s\n", std::string(name(event)).c_str(), wrong.c_str());
    }
  };
  if (!served) tell_of(Event::stage);
  if (served)
    for (const Event event : kEvents)
      if (can_happen(cell, event)) tell_of(event);
  return broken == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* only = nullptr;
  std::size_t part = 0, parts = 1;
  int cell = -1;
  bool prints = false, page = false;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--cells") == 0)
      prints = true;
    else if (std::strcmp(argv[i], "--page") == 0)
      page = true;
    else if (std::strcmp(argv[i], "--cell") == 0 && more)
      cell = std::stoi(argv[++i]);
    else if (std::strcmp(argv[i], "--event") == 0 && more)
      only = argv[++i];
    else if (const char* slash = std::strchr(argv[i], '/'); slash != nullptr) {
      part = std::stoul(argv[i]);
      parts = std::stoul(slash + 1);
    } else {
      return std::fprintf(stderr, "matrix [PART/PARTS] [--event NAME] | --cell N [--event NAME] | --cells | --page\n"),
             2;
    }
  }
  corbd::log::set_level(cell >= 0 ? corbd::log::Level::info : corbd::log::Level::error);
  if (page) return print_page(), 0;
  const auto cells = all_cells();
  if (prints) {
    for (const auto& one : cells) std::printf("%s\n", json(one).c_str());
    return 0;
  }
  if (cell >= 0) return play_one(cells.at(static_cast<std::size_t>(cell)), only);
  if (std::freopen("/dev/null", "w", stderr) == nullptr) return 2;
  return play_all(cells, part, parts, only);
}
