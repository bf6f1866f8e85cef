/**
 * Every route of the gateway. A route is one file and one line here; OpenAPI, authentication and the
 * isolation and paging suites follow from it.
 */
import type { RouteModule } from "../define-route.ts";
import { docs, llms, root, security } from "./docs.ts";
import { live, ready, status } from "./health.ts";
import { openapi } from "./openapi.ts";

export const routes = {
  health: status,
  healthLive: live,
  healthReady: ready,
  root,
  docs,
  openapi,
  llms,
  security,
} satisfies Record<string, RouteModule>;
