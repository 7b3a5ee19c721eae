#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "corbd/core/fd.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"
#include "top.hpp"

namespace corbd::cli {
namespace {

using Answer = std::optional<v1::ListActivityResponse>;

constexpr char kCtrlC = 3;
/// Keys are not read during a call, so it must be short. An agent may be busy for several of these limits.
constexpr std::chrono::seconds kTopLimit{2};
constexpr int kTopTries = 5;

/// Descriptor that a terminating signal is written to. gRPC's threads take signals too, so masks would not help.
std::atomic<int> told_at{-1};

void tell_of_signal(int) {
  const int kept = errno;
  static_cast<void>(!::write(told_at, "q", 1));
  errno = kept;
}

constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// The terminal, with its alternate screen and unbuffered keys. The destructor restores everything, also after a
/// terminating signal.
class Screen {
 public:
  Screen() {
    std::array<int, 2> pipe{-1, -1};
    static_cast<void>(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK));
    signals_ = Fd(pipe[0]);
    tells_ = Fd(pipe[1]);
    told_at = tells_.get();
    struct sigaction tell{};
    tell.sa_handler = tell_of_signal;
    for (std::size_t i = 0; i < kEnding.size(); ++i) ::sigaction(kEnding.at(i), &tell, &were_.at(i));
    if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios now = before_;
      now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
      now.c_cc[VMIN] = 1;
      now.c_cc[VTIME] = 0;
      keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
    }
    // Switch wrapping off: a long line would push the others down.
    print("\033[?1049h\033[?25l\033[?7l");
  }
  ~Screen() {
    print("\033[?7h\033[?25h\033[?1049l");
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    for (std::size_t i = 0; i < kEnding.size(); ++i) ::sigaction(kEnding.at(i), &were_.at(i), nullptr);
    told_at = -1;
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// Waits for a key; 0: none came in time. A terminating signal counts as q.
  char key(std::chrono::milliseconds within) const {
    pollfd polls[2] = {{signals_.get(), POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    // A signal's byte is ready when the interrupted poll is repeated.
    if (::poll(polls, 2, static_cast<int>(within.count())) < 0) return 0;
    if (polls[0].revents == 0 && polls[1].revents == 0) return 0;
    if (polls[0].revents != 0) return 'q';
    char byte = 0;
    // The end of the input means the terminal is gone.
    return ::read(STDIN_FILENO, &byte, 1) == 1 && byte != kCtrlC ? byte : 'q';
  }
  /// Rows for the table, without the lines around it.
  static std::size_t rows() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 20;
    return std::max<std::size_t>(size.ws_row, 8) - 5;
  }

 private:
  termios before_{};
  std::array<struct sigaction, kEnding.size()> were_{};
  Fd signals_, tells_;
  bool keys_ = false;
};

/// Draws one frame, and clears the rest of lines that were longer before.
bool draw(std::vector<TopRow> rows, const std::string& column) {
  sort_top(rows, column);
  double requests = 0, bytes = 0;
  for (const auto& row : rows) requests += row.iops(), bytes += row.bytes();
  std::string keys;
  for (const auto& one : top_columns())
    keys += std::string(1, one.key) + " " + (one.name == column ? "[" + column + "]" : std::string(one.name)) + "  ";
  std::string text = std::to_string(rows.size()) + " volumes, " + std::to_string(static_cast<std::uint64_t>(requests)) +
                     " requests/s, " + std::to_string(static_cast<std::uint64_t>(bytes / 1e6)) +
                     " MB/s\nsort: " + keys + "q quit\n\n" + top_table(rows, Screen::rows());
  std::string frame = "\033[H";
  for (const char c : text) frame += c == '\n' ? std::string("\033[K\r\n") : std::string(1, c);
  return print(frame + "\033[J");
}

/// On a terminal it ends with q, Ctrl-C or a signal, and restores the terminal.
struct Top final : Question<v1::Admin> {
  static constexpr const char* kName = "top";
  static constexpr const char* kDescription =
      "Show the current activity of this node's volumes in a table that refreshes";

  explicit Top(CLI::App& command) : Question(command) {
    std::vector<std::string> columns;
    for (const auto& column : top_columns()) columns.emplace_back(column.name);
    command.add_option("--sort", sort, "Column that orders the table, the largest first")
        ->check(CLI::IsMember(std::move(columns)))
        ->capture_default_str();
    command.add_option("--interval", interval_s, "Seconds between two looks")
        ->check(CLI::Range(1, 3600))
        ->capture_default_str();
    command.add_flag("--once", once, "Print one table and exit, which is the default if the output is not a terminal");
    add_output(command, {"text", "json"});
    command.footer("Keys: i IOPS, b bytes, l p99 latency, f in flight, s state, n name; q ends. " +
                   exit_codes("0 done, 1 failed, 3 no agent answers"));
  }
  int ask(Agent& agent) override {
    const bool live = !once && !json() && ::isatty(STDOUT_FILENO) == 1;
    return live ? watch(agent) : show_once(agent);
  }
  Answer look_at(Agent& agent) const {
    v1::ListActivityResponse response;
    if (!answered(agent, &Stub::ListActivity, v1::ListActivityRequest(), response)) return std::nullopt;
    return response;
  }
  int show_once(Agent& agent) const {
    const auto before = look_at(agent);
    if (!before) return 1;
    std::this_thread::sleep_for(std::chrono::seconds(interval_s));
    const auto now = look_at(agent);
    if (!now) return 1;
    auto rows = top_rows(*before, *now);
    sort_top(rows, sort);
    return (json() ? print(top_json(rows)) : print(top_table(rows))) ? 0 : 1;
  }
  int watch(Agent& agent) const {
    std::string column = sort;
    auto before = look_at(agent);
    if (!before) return 1;
    std::string lost;
    {
      const Screen screen;
      auto rows = top_rows(*before, *before);
      auto next = std::chrono::steady_clock::now() + std::chrono::seconds(interval_s);
      int missed = 0;
      for (;;) {
        if (!draw(rows, column)) return 1;
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
        const char key = screen.key(std::max(left, std::chrono::milliseconds(0)));
        if (key == 'q') return 0;
        for (const auto& one : top_columns())
          if (one.key == key) column = one.name;
        if (std::chrono::steady_clock::now() < next) continue;
        v1::ListActivityResponse now;
        const auto status = agent.call(&Stub::ListActivity, v1::ListActivityRequest(), now, kTopLimit);
        if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && ++missed < kTopTries) continue;
        if (!status.ok()) {
          lost = error_text(status, kTopLimit * kTopTries);
          break;
        }
        missed = 0;
        rows = top_rows(*before, now);
        before = std::move(now);
        next = std::chrono::steady_clock::now() + std::chrono::seconds(interval_s);
      }
    }
    // Print this only now, or it would vanish with the alternate screen.
    return tell(lost);
  }

  std::string sort = "iops";
  int interval_s = 2;
  bool once = false;
};

}  // namespace

void add_top(CLI::App& app, Chosen& chosen) { add<Top>(app, chosen); }

}  // namespace corbd::cli
