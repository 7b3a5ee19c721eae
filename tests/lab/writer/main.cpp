// Writers that verify what they wrote. They need nothing of corbd.
//
//   corbd-writer run    --path FILE|DEV --size BYTES --mode direct|fsync|mmap --journal J [--seconds N] [--threads T]
//                       [--paced N --pace-ms M]
//   corbd-writer verify --path FILE|DEV --journal J [--kill MICROSECONDS ...]
//   corbd-writer stalls --journal J [--kill MICROSECONDS ...]      the same figures without reading the volume
//   corbd-writer order  --path FILE|DEV --size BYTES --journal J [--seconds N] [--threads T] [--pace-ms M] [--first ID]
//   corbd-writer order-check --journal J [--journal J ...]
//   corbd-writer model  --path FILE|DEV --model M --journal J --seed S --requests N [--first ID] [--threads T] [LAYOUT]
//   corbd-writer model-check --path FILE|DEV --model M
//
// ID: of the first operation or request, and the value that it writes. Operations that are checked together need
// different ones, also those of several journals, or of several runs on one model.
// LAYOUT, of an image that has not Ceph's default: --object-size BYTES --stripe-unit BYTES --stripe-count N
//
// run looks for lost writes (durable.cpp), order for reads and writes in an impossible order (ordered.cpp), model for
// bytes that are not what they must be (modelled.cpp).
#include <cstdio>
#include <cstdlib>
#include <map>

#include "options.hpp"

namespace corbd::writer {
namespace {

Options parse(int argc, char** argv) {
  Options o;
  if (argc > 1) o.command = argv[1];
  std::map<std::string, std::string> values;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--kill")
      o.kills.push_back(std::strtoull(argv[i + 1], nullptr, 10));
    else if (name == "--journal")
      o.journals.push_back(argv[i + 1]);
    else
      values[name] = argv[i + 1];
  }
  const auto number = [&](const char* name, std::uint64_t preset) {
    return values.count(name) ? std::strtoull(values[name].c_str(), nullptr, 10) : preset;
  };
  o.path = values["--path"];
  o.model = values["--model"];
  if (values.count("--mode")) o.mode = values["--mode"];
  o.size = number("--size", 0);
  o.first = number("--first", 1);
  o.seed = number("--seed", 1);
  o.requests = number("--requests", 0);
  o.layout.object_size = number("--object-size", o.layout.object_size);
  o.layout.stripe_unit = number("--stripe-unit", o.layout.object_size);
  o.layout.stripe_count = number("--stripe-count", 1);
  o.seconds = static_cast<unsigned>(number("--seconds", 0));
  o.threads = static_cast<unsigned>(number("--threads", 4));
  o.paced = static_cast<unsigned>(number("--paced", 0));
  o.pace_ms = static_cast<unsigned>(number("--pace-ms", o.command == "order" ? 0 : 100));
  return o;
}

int perform(const Options& o) {
  const bool known = o.mode == "direct" || o.mode == "fsync" || o.mode == "mmap";
  if (known && !o.journals.empty()) {
    if (o.command == "run" && !o.path.empty()) return run(o);
    if ((o.command == "verify" && !o.path.empty()) || o.command == "stalls") return verify(o);
    if (o.command == "order" && !o.path.empty()) return run_ordered(o);
    if (o.command == "order-check") return check_ordered(o);
    if (o.command == "model" && !o.path.empty() && !o.model.empty()) return run_modelled(o);
  }
  if (o.command == "model-check" && !o.path.empty() && !o.model.empty()) return check_modelled(o);
  std::fputs(
      "usage: corbd-writer run --path P --size BYTES --mode direct|fsync|mmap --journal J [--seconds N] [--threads T]"
      " [--paced N] [--pace-ms M]\n       corbd-writer verify --path P --journal J [--kill MICROSECONDS ...]\n"
      "       corbd-writer stalls --journal J [--kill MICROSECONDS ...]\n"
      "       corbd-writer order --path P --size BYTES --journal J [--seconds N] [--threads T] [--pace-ms M]"
      " [--first ID]\n       corbd-writer order-check --journal J [--journal J ...]\n"
      "       corbd-writer model --path P --model M --journal J --seed S --requests N [--first ID] [--threads T]"
      " [--object-size BYTES --stripe-unit BYTES --stripe-count N]\n"
      "       corbd-writer model-check --path P --model M\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace corbd::writer

int main(int argc, char** argv) { return corbd::writer::perform(corbd::writer::parse(argc, argv)); }
