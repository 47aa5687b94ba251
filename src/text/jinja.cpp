#include "text/jinja.h"

#include <algorithm>

#include "text/jinja_parser.h"
#include "text/jinja_render.h"

namespace strata {
namespace {

Error to_error(jinja::Stop stop) {
    return {ErrorKind::failed, std::move(stop.message), stop.code};
}

}  // namespace

Template::Template(std::unique_ptr<jinja::Program> program) : program_(std::move(program)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::parse(std::string_view source) {
    auto program = std::make_unique<jinja::Program>();
    try {
        jinja::parse(source, *program);
    } catch (jinja::Stop& stop) {
        return to_error(std::move(stop));
    }
    return Template(std::move(program));
}

Result<std::string> Template::render(const Json& variables, const RenderOptions& options) const {
    int line = 0;
    try {
        jinja::Renderer renderer(*program_, variables, options);
        try {
            return renderer.run();
        } catch (...) {
            line = renderer.line();
            throw;
        }
    } catch (jinja::Stop& stop) {
        // What the template itself says is for the client and stays as it is.
        if (std::string_view(stop.code) != "template_raised" && line > 0) {
            stop.message = "line " + std::to_string(line) + ": " + stop.message;
        }
        return to_error(std::move(stop));
    }
}

bool Template::mentions(std::string_view variable) const {
    return std::find(program_->names.begin(), program_->names.end(), variable) != program_->names.end();
}

}  // namespace strata
