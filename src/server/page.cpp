#include "server/page.h"

#include "server/page_files.h"
#include "server/registry_routes.h"

namespace strata::server {
namespace {

void send_file(const RouteCall& call, const char* type, std::string_view text) {
    call.exchange.respond(
        {.content_type = type,
         .body = std::string(text),
         // Nothing from elsewhere, and no frame of another page around it.
         .headers = {
             {"Content-Security-Policy",
              "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
              "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
             {"X-Content-Type-Options", "nosniff"},
             {"Referrer-Policy", "no-referrer"},
             {"Cache-Control", "no-cache"}}});
}

}  // namespace

void page(const RouteCall& call) {
    send_file(call, "text/html; charset=utf-8", kPageHtml);
}

void page_file(const RouteCall& call) {
    if (call.rest == "page.css") return send_file(call, "text/css; charset=utf-8", kPageCss);
    if (call.rest == "page.js") return send_file(call, "text/javascript; charset=utf-8", kPageJs);
    respond_error(call, not_found("there is nothing at this path"));
}

}  // namespace strata::server
