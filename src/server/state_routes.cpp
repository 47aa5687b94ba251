#include "server/state_routes.h"

#include "server/registry_routes.h"
#include "setup/machine.h"

namespace strata::server {
namespace {

Gauges gauges(const Services& s) {
    Gauges g;
    g.running = s.queue.running();
    g.waiting = s.queue.waiting();
    g.slots = s.queue.slots();
    g.connections = s.connections();
    const Serving now = s.host.serving();
    g.loaded = now.engine != nullptr;
    if (now.text) g.model = now.text->entry().id;
    if (now.engine) g.engine = now.engine->facts();
    g.live = s.activities.json();
    return g;
}

/// What runs now: the oldest request's facts beside the counts.
Json activity(const Services& s) {
    const Json live = s.activities.json();
    Json body = {{"busy", s.queue.running() > 0}, {"queued", s.queue.waiting()}, {"requests", live}};
    if (!live.empty())
        for (const auto& [key, value] : live[0].items()) body[key] = value;
    return body;
}

}  // namespace

void health(const RouteCall& call) {
    const Services& s = call.services;
    const EngineHost::State state = s.host.state();
    const Serving now = s.host.serving();
    const bool loading = state == EngineHost::State::loading;
    const Json body = {{"status", loading ? "loading" : "ok"},
                       {"loaded", now.engine != nullptr},
                       {"model", now.text ? Json(now.text->entry().id) : Json()},
                       {"max_context", s.host.context()},
                       {"images", false},
                       {"api_key", !s.options.api_key.empty()},
                       {"version", POLYSTRATA_VERSION}};
    respond_json(call, body, loading ? 503 : 200);
}

/// For balancers: whether a request sent now would be answered soon.
void ready(const RouteCall& call) {
    const Services& s = call.services;
    const bool fine = s.host.state() == EngineHost::State::ready && !s.closing && s.queue.waiting() < s.queue.limit();
    respond_json(call, {{"ready", fine}, {"state", to_string(s.host.state())}, {"waiting", s.queue.waiting()}},
                 fine ? 200 : 503);
}

void status(const RouteCall& call) {
    respond_json(call, activity(call.services));
}

void whole_status(const RouteCall& call) {
    const Services& s = call.services;
    static const Json machine = machine_json(this_machine());  // asks nvidia-smi: once
    const Serving now = s.host.serving();
    Json engine = Json::object();
    if (now.engine)
        for (const auto& [key, value] : now.engine->facts()) engine[key] = value;
    respond_json(call, {{"version", POLYSTRATA_VERSION},
                        {"model", now.text ? Json(now.text->entry().id) : Json()},
                        {"state", to_string(s.host.state())},
                        {"context", s.host.context()},
                        {"apis", Json::array({"chat completions", "completions", "responses", "messages"})},
                        {"engine", std::move(engine)},
                        {"activity", activity(s)},
                        {"last_request", s.metrics.last_request()},
                        {"machine", machine},
                        {"hardware", s.metrics.hardware()}});
}

/// What each of the engine's conversations works on, in the shape of llama.cpp.
void slots(const RouteCall& call) {
    const Services& s = call.services;
    Json out = Json::array();
    for (const Json& one : s.activities.json()) {
        if (one["phase"] == "waiting") continue;
        out.push_back({{"id", out.size()},
                       {"n_ctx", s.host.context()},
                       {"is_processing", true},
                       {"id_task", one["id"]},
                       {"phase", one["phase"]},
                       {"n_prompt_tokens", one["prompt_tokens"]},
                       {"n_prompt_tokens_processed", one["read"]},
                       {"n_decoded", one["generated"]}});
    }
    while (out.size() < s.queue.slots())
        out.push_back({{"id", out.size()}, {"n_ctx", s.host.context()}, {"is_processing", false}, {"id_task", -1}});
    respond_json(call, out);
}

void metrics(const RouteCall& call) {
    const HttpRequest& request = call.exchange.request();
    const Gauges now = gauges(call.services);
    const bool json = request.query("format") == "json" ||
                      (request.query("format").empty() &&
                       request.header("accept").find("application/json") != std::string_view::npos);
    if (json) return respond_json(call, call.services.metrics.json(now, request.query("requests") == "all"));
    call.exchange.respond(
        {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = call.services.metrics.prometheus(now)});
}

void settings(const RouteCall& call) {
    respond_json(call, call.services.settings.json());
}

void change_settings(const RouteCall& call) {
    const auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error());
    if (const auto changed = call.services.settings.change(*body); !changed)
        return respond_error(call, changed.error());
    settings(call);
}

void version(const RouteCall& call) {
    respond_json(call, {{"version", POLYSTRATA_VERSION}});
}

}  // namespace strata::server
