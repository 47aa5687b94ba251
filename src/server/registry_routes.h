// Routes about models: OpenAI's list, the registry, switching, memory of the card.
#pragma once

#include "server/router.h"

namespace strata::server {

void list_models(const RouteCall& call);
void one_model(const RouteCall& call);
void registry_list(const RouteCall& call);
void registry_current(const RouteCall& call);
void registry_load(const RouteCall& call);
void registry_unload(const RouteCall& call);
void set_vram(const RouteCall& call);

/// Why a model cannot be used, without the names of this machine's folders.
std::string public_problem(const ModelEntry& entry);

// routes.cpp: how handlers answer.
void respond_json(const RouteCall& call, const Json& body, int status = 200);
void respond_error(const RouteCall& call, const ApiError& error, Wire wire = Wire::openai);

}  // namespace strata::server
