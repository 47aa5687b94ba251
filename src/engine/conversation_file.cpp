#include "engine/conversation_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/atomic_file.h"
#include "base/hash.h"
#include "engine/state_copy.h"

namespace strata {
namespace {

constexpr std::string_view kMagic = "STRATACV";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMaxCheckpoints = 4096;

/// What decides the meaning of a state's bytes. A ring's capacity does not: its rows are stored in the order of their
/// tokens.
uint64_t layout_id(const StateLayout& layout) {
    Hasher hasher;
    for (const PartSpec& part : layout.parts) {
        hasher.update(part.name);
        for (const uint64_t n : {static_cast<uint64_t>(part.kind), static_cast<uint64_t>(part.type),
                                 static_cast<uint64_t>(part.width), static_cast<uint64_t>(part.window), part.bytes})
            hasher.update_number(n);
    }
    return hasher.value();
}

class Writer {
  public:
    explicit Writer(AtomicFile& file) : file_(file) {}
    void bytes(std::span<const std::byte> bytes) {
        if (!status_) return;
        hasher_.update(bytes);
        status_ = file_.write(bytes);
    }
    void number(uint64_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
    uint64_t hash() const { return hasher_.value(); }
    Result<void>& status() { return status_; }

  private:
    AtomicFile& file_;
    Hasher hasher_;
    Result<void> status_;
};

class Reader {
  public:
    Reader(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {
        if (std::fseek(file_, 0, SEEK_END) == 0) left_ = static_cast<uint64_t>(std::max(0L, std::ftell(file_)));
        std::rewind(file_);
    }
    ~Reader() { std::fclose(file_); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    Error refuse(const std::string& why, const char* code) const { return file_error(path_ + ": " + why, code); }

    Result<void> bytes(std::span<std::byte> out) {
        if (out.size() > left_) return refuse("the saved conversation is cut short", "truncated");
        if (!out.empty() && std::fread(out.data(), 1, out.size(), file_) != out.size())
            return refuse(std::string("cannot be read: ") + std::strerror(errno), "read");
        left_ -= out.size();
        hasher_.update(out);
        return {};
    }
    Result<uint64_t> number() {
        uint64_t value = 0;
        STRATA_TRY(bytes(std::as_writable_bytes(std::span(&value, 1))));
        return value;
    }
    /// A number that is at most `most`.
    Result<uint64_t> number(uint64_t most) {
        STRATA_TRY_ASSIGN(const uint64_t value, number());
        if (value > most) return refuse("the saved conversation is damaged", "damaged");
        return value;
    }
    Result<void> block(HostBytes& out, uint64_t size) {
        if (size > left_) return refuse("the saved conversation is cut short", "truncated");
        if (!out.resize(size)) return failure(path_ + ": not enough memory to load the conversation");
        return bytes(out.span());
    }
    uint64_t hash() const { return hasher_.value(); }
    uint64_t left() const { return left_; }

  private:
    std::string path_;
    std::FILE* file_;
    uint64_t left_ = 0;
    Hasher hasher_;
};

Result<void> read_hidden(Reader& reader, const ModelFacts& facts, HostBytes& hidden) {
    STRATA_TRY_ASSIGN(const uint64_t size, reader.number(static_cast<uint64_t>(facts.width) * sizeof(float)));
    return reader.block(hidden, size);
}

Result<void> read_checkpoints(Reader& reader, uint64_t count, const StateLayout& layout, const ModelFacts& facts,
                              PackedConversation& packed) {
    int least = 1;
    for (uint64_t i = 0; i < count; ++i) {
        Checkpoint& c = packed.checkpoints.emplace_back();
        STRATA_TRY_ASSIGN(const uint64_t rows, reader.number(packed.keys.size()));
        STRATA_TRY_ASSIGN(const uint64_t position, reader.number(INT32_MAX / 2));
        STRATA_TRY_ASSIGN(const uint64_t drafts, reader.number(1));
        c.rows = static_cast<int>(rows);
        c.next_position = static_cast<int>(position);
        c.drafts = drafts != 0;
        if (c.rows < least) return reader.refuse("the saved conversation is damaged", "damaged");
        least = c.rows + 1;
        STRATA_TRY(reader.block(c.changing, changing_bytes(layout, c.rows)));
        STRATA_TRY(read_hidden(reader, facts, c.hidden));
    }
    return {};
}

}  // namespace

Result<void> write_conversation(const std::string& path, const PackedConversation& packed, const StateLayout& layout,
                                uint64_t model_id) {
    STRATA_TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
    Writer out(file);
    out.bytes(std::as_bytes(std::span(kMagic)));
    for (const uint64_t n : {kVersion, model_id, layout_id(layout), static_cast<uint64_t>(packed.rows()),
                             static_cast<uint64_t>(packed.next_position), static_cast<uint64_t>(packed.drafts),
                             static_cast<uint64_t>(packed.checkpoints.size())})
        out.number(n);
    out.bytes(std::as_bytes(std::span(packed.keys)));
    out.bytes(packed.lasting.span());
    out.bytes(packed.changing.span());
    out.number(packed.hidden.size());
    out.bytes(packed.hidden.span());
    for (const Checkpoint& c : packed.checkpoints) {
        out.number(static_cast<uint64_t>(c.rows));
        out.number(static_cast<uint64_t>(c.next_position));
        out.number(c.drafts);
        out.bytes(c.changing.span());
        out.number(c.hidden.size());
        out.bytes(c.hidden.span());
    }
    out.number(out.hash());
    STRATA_TRY(std::move(out.status()));
    return file.commit();
}

Result<std::unique_ptr<PackedConversation>> read_conversation(const std::string& path, const StateLayout& layout,
                                                              const ModelFacts& facts, int max_rows,
                                                              uint64_t model_id) {
    std::FILE* file = std::fopen(path.c_str(), "rbe");
    if (!file) return file_error(path + ": cannot be opened: " + std::strerror(errno), "missing");
    Reader reader(path, file);
    std::array<char, 8> magic{};
    STRATA_TRY(reader.bytes(std::as_writable_bytes(std::span(magic))));
    if (std::string_view(magic.data(), magic.size()) != kMagic)
        return reader.refuse("is not a saved conversation", "magic");
    STRATA_TRY_ASSIGN(const uint64_t version, reader.number());
    if (version != kVersion)
        return reader.refuse("has version " + std::to_string(version) + ", this engine reads version 1", "version");
    STRATA_TRY_ASSIGN(const uint64_t model, reader.number());
    if (model != model_id) return reader.refuse("is a conversation with another model", "model");
    STRATA_TRY_ASSIGN(const uint64_t state, reader.number());
    if (state != layout_id(layout))
        return reader.refuse("was saved with other settings: use the same --kv and draft block", "layout");

    auto packed = std::make_unique<PackedConversation>();
    STRATA_TRY_ASSIGN(const uint64_t rows, reader.number());
    STRATA_TRY_ASSIGN(const uint64_t position, reader.number(INT32_MAX / 2));
    STRATA_TRY_ASSIGN(const uint64_t drafts, reader.number(1));
    STRATA_TRY_ASSIGN(const uint64_t checkpoints, reader.number(kMaxCheckpoints));
    if (rows > static_cast<uint64_t>(max_rows))
        return reader.refuse(
            "has " + std::to_string(rows) + " rows, more than the context (" + std::to_string(max_rows) + ")",
            "context");
    if (rows * sizeof(RowKey) > reader.left()) return reader.refuse("the saved conversation is cut short", "truncated");
    packed->keys.resize(rows);
    packed->next_position = static_cast<int>(position);
    packed->drafts = drafts != 0;
    STRATA_TRY(reader.bytes(std::as_writable_bytes(std::span(packed->keys))));
    STRATA_TRY(reader.block(packed->lasting, lasting_bytes(layout, packed->rows())));
    STRATA_TRY(reader.block(packed->changing, changing_bytes(layout, packed->rows())));
    STRATA_TRY(read_hidden(reader, facts, packed->hidden));
    STRATA_TRY(read_checkpoints(reader, checkpoints, layout, facts, *packed));
    const uint64_t hash = reader.hash();
    STRATA_TRY_ASSIGN(const uint64_t stored, reader.number());
    if (hash != stored || reader.left() > 0)
        return reader.refuse("the saved conversation is damaged (its checksum differs)", "damaged");
    return Result<std::unique_ptr<PackedConversation>>(std::move(packed));
}

}  // namespace strata
