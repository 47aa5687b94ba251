// What OpenAI's chats and completions share: fields of the request, chunks around choices, the end of a stream.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "server/answer_request.h"
#include "server/answer_writer.h"

namespace strata::server {

/// Reads the fields of both, the limits by these names, the first that is there.
Api<void> read_openai_fields(const Fields& body, std::initializer_list<const char*> limits, AnswerRequest& out);

class OpenAiWriter : public AnswerWriter {
  public:
    std::string end_reply(int reply, const ReplyResult& result, const Totals& totals) override;
    std::string end(const Totals& totals) override;
    std::string error(const ApiError& error, const std::string& request_id) override;
    void so_far(const Totals& totals) override { so_far_ = timings_json(totals); }
    Json whole(std::span<const ReplyResult> replies, const Totals& totals) override;

  protected:
    struct Names {
        const char* prefix;  // of the id
        const char* chunk;   // a chunk's "object"
        const char* whole;   // a whole answer's
    };
    OpenAiWriter(const Names& names, const AnswerRequest& request, const AnswerIdentity& identity);

    /// The choice that closes a reply in a stream; `finish` is its reason.
    virtual Json last_choice(int reply, const char* finish) = 0;
    virtual Json whole_choice(int reply, const ReplyResult& result, const char* finish) = 0;

    /// An event with one choice (null: none), and further members of the chunk.
    std::string chunk(const Json& choice, const Json& more = Json::object()) const;

  private:
    Json head(const char* object) const;

    const Names names_;
    const AnswerIdentity identity_;
    const bool include_usage_;
    std::string chunk_head_;  // of every chunk, up to its choices
    Json so_far_;             // timings for the next chunks; null: not asked for
};

}  // namespace strata::server
