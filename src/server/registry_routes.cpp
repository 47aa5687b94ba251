#include "server/registry_routes.h"

#include <algorithm>
#include <ctime>

#include "server/fields.h"

namespace strata::server {
namespace {

std::string date_text(std::time_t when) {
    char text[32];
    std::tm utc{};
    gmtime_r(&when, &utc);
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

/// One model as OpenAI's and Anthropic's clients read it.
Json model_json(const Services& s, const ModelEntry& entry, bool current, const std::string& id) {
    const bool loaded = current && s.host.state() == EngineHost::State::ready;
    Json meta = {{"n_ctx", current ? s.host.context() : entry.context()}};
    if (entry.facts) {
        meta["n_ctx_train"] = entry.facts->context;
        meta["n_vocab"] = entry.facts->vocabulary;
        meta["n_params"] = entry.facts->parameters;
        meta["size"] = entry.facts->file_bytes;
        meta["architecture"] = entry.facts->architecture;
    }
    meta["loaded"] = loaded;
    meta["vision"] = false;
    meta["status"] = !entry.available() ? "unavailable" : loaded ? "loaded" : current ? "unloaded" : "available";
    meta["problem"] = entry.problem.empty() ? Json() : Json(public_problem(entry));
    return {
        {"id", id},
        {"object", "model"},
        {"created", s.started},
        {"owned_by", "polystrata"},
        {"type", "model"},
        {"display_name", entry.display_name},
        {"created_at", date_text(s.started)},
        {"status", {{"value", loaded ? "loaded" : "unloaded"}}},
        {"architecture", {{"input_modalities", Json::array({"text"})}, {"output_modalities", Json::array({"text"})}}},
        {"aliases", entry.config.aliases},
        {"meta", std::move(meta)}};
}

/// All models, the current one first (also one that is a file and not installed).
std::vector<ModelEntry> all_entries(Services& s, std::string& current) {
    std::vector<ModelEntry> entries;
    const Serving now = s.host.serving();
    if (now.text) {
        entries.push_back(now.text->entry());
        current = entries[0].id;
    }
    if (const auto registry = s.host.registry(true))
        for (const ModelEntry& entry : (*registry)->entries())
            if (entry.id != current) entries.push_back(entry);
    return entries;
}

/// The registry's form, with what the server knows.
Json registry_entry(const Services& s, const ModelEntry& entry, bool current) {
    Json out = entry_json(entry);
    out.erase("path");  // nobody on the network needs to know where files lie
    if (!entry.problem.empty()) out["problem"] = public_problem(entry);
    out["current"] = current;
    if (current && entry.available())
        out["status"] = s.host.state() == EngineHost::State::ready ? "loaded" : "unloaded";
    return out;
}

Api<ModelEntry> find_entry(Services& s, const std::string& name) {
    const auto registry = s.host.registry(true);
    if (!registry) return internal_error(registry.error().message);
    const Serving now = s.host.serving();
    if (name.empty()) {
        if (now.text) return now.text->entry();
        return not_found("no model is in use; name one: {\"model\": \"NAME\"}", "model_not_found");
    }
    const auto found = (*registry)->find(name);
    if (found) return **found;
    if (now.text && lower(now.text->entry().id) == lower(name)) return now.text->entry();
    if (found.error().kind == ErrorKind::usage) return invalid_value("model", found.error().message);
    return not_found(found.error().message, "model_not_found");
}

}  // namespace

std::string public_problem(const ModelEntry& entry) {
    // The sentence without the folder in front of the file's name.
    std::string text = entry.problem;
    const std::string folder = entry.path.parent_path().string() + "/";
    for (size_t at = text.find(folder); folder.size() > 1 && at != std::string::npos; at = text.find(folder))
        text.erase(at, folder.size());
    return text;
}

void list_models(const RouteCall& call) {
    std::string current;
    const std::vector<ModelEntry> entries = all_entries(call.services, current);
    Json data = Json::array();
    for (const ModelEntry& entry : entries) {
        data.push_back(model_json(call.services, entry, entry.id == current, entry.id));
        for (const std::string& alias : entry.config.aliases)
            data.push_back(model_json(call.services, entry, entry.id == current, alias));
    }
    const Json first = data.empty() ? Json() : data.front()["id"], last = data.empty() ? Json() : data.back()["id"];
    respond_json(
        call,
        {{"object", "list"}, {"data", std::move(data)}, {"first_id", first}, {"last_id", last}, {"has_more", false}});
}

void one_model(const RouteCall& call) {
    std::string current;
    const std::string wanted = lower(call.rest);
    for (const ModelEntry& entry : all_entries(call.services, current))
        if (lower(entry.id) == wanted ||
            std::ranges::any_of(entry.config.aliases, [&](const std::string& alias) { return lower(alias) == wanted; }))
            return respond_json(call, model_json(call.services, entry, entry.id == current, entry.id));
    respond_error(call,
                  not_found("no model is called '" + std::string(call.rest.substr(0, 200)) + "'", "model_not_found"));
}

void registry_list(const RouteCall& call) {
    std::string current;
    Json models = Json::array();
    for (const ModelEntry& entry : all_entries(call.services, current))
        models.push_back(registry_entry(call.services, entry, entry.id == current));
    respond_json(call, {{"models", std::move(models)}});
}

void registry_current(const RouteCall& call) {
    const Serving now = call.services.host.serving();
    if (!now.text) return respond_json(call, {{"id", nullptr}, {"loaded", false}, {"entry", nullptr}});
    respond_json(call, {{"id", now.text->entry().id},
                        {"loaded", now.engine != nullptr},
                        {"state", to_string(call.services.host.state())},
                        {"entry", registry_entry(call.services, now.text->entry(), true)}});
}

void registry_load(const RouteCall& call) {
    Json body = Json::object();
    if (!call.exchange.request().body.empty()) {
        auto parsed = parse_body(call.exchange.request().body);
        if (!parsed) return respond_error(call, parsed.error());
        body = std::move(*parsed);
    }
    const auto name = Fields(body).text("model");
    if (!name) return respond_error(call, name.error());
    const auto entry = find_entry(call.services, name->value_or(""));
    if (!entry) return respond_error(call, entry.error());
    const Serving now = call.services.host.serving();
    // The model that is loaded already needs no waiting.
    if (!(now.engine && now.engine->alive() && now.text->entry().id == entry->id))
        if (auto loaded = call.services.host.load(*entry); !loaded) return respond_error(call, loaded.error());
    respond_json(call, registry_entry(call.services, *entry, true));
}

void registry_unload(const RouteCall& call) {
    if (auto unloaded = call.services.host.unload(); !unloaded) return respond_error(call, unloaded.error());
    const Serving now = call.services.host.serving();
    respond_json(call, {{"id", now.text ? Json(now.text->entry().id) : Json()}, {"loaded", false}});
}

void set_vram(const RouteCall& call) {
    auto body = parse_body(call.exchange.request().body);
    if (!body) return respond_error(call, body.error());
    if (!body->contains("reserve_mib")) return respond_error(call, missing("reserve_mib"));
    const auto reserve = Fields(*body).integer("reserve_mib", 0, int64_t{1} << 30);
    if (!reserve) return respond_error(call, reserve.error());
    const auto facts = call.services.host.vram(*reserve);
    if (!facts) return respond_error(call, facts.error());
    Json out = Json::object();
    for (const char* key : {"vram_reserve_mib", "expert_slots", "expert_cache_mib", "vram_free_mib"}) {
        const auto found = facts->find(key);
        if (found == facts->end()) continue;
        out[std::string_view(key) == "vram_reserve_mib" ? "reserve_mib" : key] = std::atoll(found->second.c_str());
    }
    respond_json(call, out);
}

}  // namespace strata::server
