/**
 * Every route of the gateway. A route is one file and one line here; OpenAPI, authentication and the
 * isolation and paging suites follow from it.
 */
import type { RouteModule } from "../define-route.ts";
import { live, ready, status } from "./health.ts";

export const routes = {
  health: status,
  healthLive: live,
  healthReady: ready,
} satisfies Record<string, RouteModule>;
