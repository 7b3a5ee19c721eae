// The next agent's side, once it was heard.
#include "corbd/core/log.hpp"
#include "passing.hpp"

namespace corbd::handover {
namespace {

// The agent before may first wait for commands to the kernel's driver, and for calls under way.
constexpr std::chrono::seconds kSpeaksWithin{150};

}  // namespace

Taker::Taker(executor control, Clock& clock, Fd before, std::vector<std::string> unopened_images)
    : clock_(clock),
      predecessor_(std::make_shared<Conversation>(std::move(control), clock, std::move(before))),
      unopened_images_(std::move(unopened_images)) {}

task<result<>> Taker::run(TakeoverSink& sink) {
  for (;;) {
    auto message = co_await predecessor_->hear({clock_.now() + kSpeaksWithin});
    if (!message && message.error().code == errc::timed_out && has_lock_) {
      log::warning("handover.waits", {{"for", "the end of the agent before, which says nothing"},
                                      {"effect", "devices that it gave are served, and nothing else is done"}});
      continue;
    }
    const auto word = message ? word_of(*message) : result<Word>(message.error());
    if (!word) co_return word.error();
    if (word->what == Word::What::end) break;
    if (auto done = co_await follow(*word, std::move(message->descriptor), sink); !done) co_return done;
  }
  predecessor_->end();
  co_return result<>();
}

/// If the agent before hears nothing any more, its end is heard next.
task<result<>> Taker::follow(const Word& word, Fd descriptor, TakeoverSink& sink) {
  switch (word.what) {
    case Word::What::ready:
      static_cast<void>(predecessor_->say({Word::What::ready, {}, 0, unopened_images_}));
      co_return result<>();
    case Word::What::begins:
      sink.begin();
      co_return result<>();
    case Word::What::lock: {
      has_lock_ = true;
      auto taken = co_await sink.take_lock(std::move(descriptor));
      if (taken) static_cast<void>(predecessor_->say({Word::What::loaded}));
      co_return taken;
    }
    case Word::What::listener:
      sink.take_listener(std::move(descriptor), word.registered);
      co_return result<>();
    case Word::What::link:
      sink.take_link({word.volume_id, word.device, std::move(descriptor)},
                     [before = predecessor_, device = word.device] {
                       static_cast<void>(before->say({Word::What::served, {}, device}));
                     });
      co_return result<>();
    default:
      co_return Error{errc::internal, "the agent before says what only the next one can"};
  }
}

}  // namespace corbd::handover
