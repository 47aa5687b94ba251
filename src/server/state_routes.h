// Routes that tell what the server does: for balancers, monitors and the page.
#pragma once

#include "server/router.h"

namespace strata::server {

void health(const RouteCall& call);
void ready(const RouteCall& call);
void status(const RouteCall& call);
void whole_status(const RouteCall& call);
void slots(const RouteCall& call);
void metrics(const RouteCall& call);
void settings(const RouteCall& call);
void change_settings(const RouteCall& call);
void version(const RouteCall& call);

}  // namespace strata::server
