// The chat page: files of web/, part of the program.
#pragma once

#include "server/router.h"

namespace strata::server {

void page(const RouteCall& call);       // "/"
void page_file(const RouteCall& call);  // "/web/*"

}  // namespace strata::server
