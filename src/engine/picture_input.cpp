#include "engine/picture_input.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/hash.h"

namespace strata {
namespace {

constexpr uint32_t kMagic = 0x31455653;
constexpr uint32_t kMaxRows = 1 << 20;

struct Picture {
    int rows, nx, ny;
    size_t first_value;
};

Error refuse(const std::string& path, const std::string& why) {
    return usage_error("bad request: " + path + ": " + why);
}

Result<std::vector<Picture>> read_pictures(const std::string& path, int width, std::vector<float>& values) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
    if (!file) return refuse(path, std::string("cannot be opened: ") + std::strerror(errno));
    std::vector<Picture> pictures;
    for (std::array<uint32_t, 5> head{};;) {
        const size_t got = std::fread(head.data(), 1, sizeof head, file.get());
        if (got == 0) return pictures;
        const auto [magic, rows, nx, ny, row_width] = head;
        if (got != sizeof head || magic != kMagic) return refuse(path, "is no file of picture rows, or is cut short");
        if (rows == 0 || rows > kMaxRows || uint64_t{nx} * ny != rows)
            return refuse(path, "a picture of " + std::to_string(nx) + " x " + std::to_string(ny) + " has " +
                                    std::to_string(rows) + " rows");
        if (row_width != static_cast<uint32_t>(width))
            return refuse(path,
                          "rows of " + std::to_string(row_width) + " values, the model takes " + std::to_string(width));
        pictures.push_back({static_cast<int>(rows), static_cast<int>(nx), static_cast<int>(ny), values.size()});
        const size_t count = size_t{rows} * row_width;
        values.resize(values.size() + count);
        if (std::fread(values.data() + pictures.back().first_value, sizeof(float), count, file.get()) != count)
            return refuse(path, "is cut short in picture " + std::to_string(pictures.size()));
    }
}

}  // namespace

PictureInput::Part PictureInput::part(int first, int count, int width) const {
    Part part;
    for (const Place& place : places) {
        const int begin = std::max(place.first, first), end = std::min(place.first + place.rows, first + count);
        if (begin >= end) continue;
        if (!part.values)
            part.values =
                values.data() + static_cast<size_t>(place.first_row + begin - place.first) * static_cast<size_t>(width);
        part.spans.push_back({begin - first, end - begin});
    }
    return part;
}

int PictureInput::end_outside_pictures(int at, int end) const {
    for (const Place& place : places) {
        if (place.first >= end || place.first + place.rows <= end) continue;
        return place.first > at ? place.first : place.first + place.rows;
    }
    return end;
}

Result<PictureInput> place_pictures(const std::string& path, std::span<const int32_t> prompt, int32_t image_pad,
                                    const ModelFacts& facts) {
    PictureInput input;
    STRATA_TRY_ASSIGN(const std::vector<Picture> pictures, read_pictures(path, facts.width, input.values));
    input.keys.assign(prompt.begin(), prompt.end());
    int position = 0;
    size_t next = 0, row = 0;
    const auto text = [&] {
        input.positions.push_back({position, position, position});
        input.next_positions.push_back(++position);
        ++row;
    };
    while (row < prompt.size()) {
        if (prompt[row] != image_pad) {
            text();
            continue;
        }
        if (next == pictures.size()) return usage_error("the prompt has more images than the embeddings file");
        const Picture& picture = pictures[next++];
        const auto pads = static_cast<int>(std::find_if(prompt.begin() + static_cast<std::ptrdiff_t>(row), prompt.end(),
                                                        [&](int32_t id) { return id != image_pad; }) -
                                           (prompt.begin() + static_cast<std::ptrdiff_t>(row)));
        if (pads < picture.rows)
            return usage_error("image " + std::to_string(next) + " has " + std::to_string(picture.rows) +
                               " rows but fewer placeholders");
        const auto width = static_cast<size_t>(facts.width);
        const uint64_t hash = hash_bytes(std::as_bytes(
            std::span(input.values).subspan(picture.first_value, static_cast<size_t>(picture.rows) * width)));
        input.places.push_back({static_cast<int>(row), picture.rows, static_cast<int>(picture.first_value / width)});
        const bool grid = facts.pictures == ModelFacts::Pictures::grid;
        const int after = position + (grid ? std::max(picture.nx, picture.ny) : picture.rows);
        for (int r = 0; r < picture.rows; ++r, ++row) {
            const int p = position;
            if (grid)
                input.positions.push_back({p, p + r / picture.nx, p + r % picture.nx});
            else
                input.positions.push_back({p + r, p + r, p + r});
            input.next_positions.push_back(grid ? after : p + r + 1);
            Hasher key;  // another picture or another shape is another key in all of its rows
            for (const uint64_t n : {hash, uint64_t(picture.nx), uint64_t(r)}) key.update_number(n);
            input.keys[row] = -1 - static_cast<RowKey>(key.value() >> 1);
        }
        position = after;
    }
    if (next < pictures.size()) return usage_error("the embeddings file has more images than the prompt");
    if (!input.places.empty() &&
        input.places.back().first + input.places.back().rows == static_cast<int>(prompt.size()))
        return usage_error("the prompt cannot end in an image");
    return input;
}

}  // namespace strata
