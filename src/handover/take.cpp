// The next agent's side, once it was heard.
#include "corbd/core/log.hpp"
#include "passing.hpp"

namespace corbd::handover {
namespace {

// The agent before may first wait for commands to the kernel's driver, and for calls under way.
constexpr std::chrono::seconds kSpeaksWithin{150};

}  // namespace

Taker::Taker(executor control, Clock& clock, Fd before)
    : clock_(clock), before_(std::make_shared<Conversation>(std::move(control), clock, std::move(before))) {}

task<result<>> Taker::run(Heir& heir) {
  for (;;) {
    auto message = co_await before_->hear({clock_.now() + kSpeaksWithin});
    const auto word = message ? word_of(*message) : result<Word>(message.error());
    if (!word) co_return word.error();
    result<> done;
    switch (word->what) {
      case Word::What::ready:
        // That it has ended is heard next.
        static_cast<void>(before_->say(*word));
        break;
      case Word::What::lock:
        done = co_await heir.take_lock(std::move(message->descriptor));
        break;
      case Word::What::link:
        heir.take_link({word->volume_id, word->device, std::move(message->descriptor)},
                       [before = before_, device = word->device] {
                         // If it hears nothing any more, nobody waits for this.
                         static_cast<void>(before->say({Word::What::served, {}, device}));
                       });
        break;
      case Word::What::served:
        done = Error{errc::internal, "the agent before says what only the next one can"};
        break;
      case Word::What::end:
        before_->end();
        co_return result<>();
    }
    if (!done) co_return done;
  }
}

}  // namespace corbd::handover
