/**
 * An app whose routes are read in two parts: those that somebody waits for with every cold start, and all of them
 * with the first request to another address.
 */
import { lazily } from "@toolyard/core/once";
import { getPath } from "hono/utils/url";
import { createApp } from "./app.ts";
import type { AppDeps, ServingApp } from "./app-env.ts";
import type { RouteModule } from "./define-route.ts";

type Routes = Readonly<Record<string, RouteModule>>;

/** @param awaited their paths have no parameters, and all methods of each are among them */
export function createLateApp(deps: AppDeps, awaited: Routes, readAll: () => Promise<Routes>): ServingApp {
  const first = createApp(deps, awaited);
  const paths = new Set(Object.values(awaited).map(({ path }) => path));
  const whole = lazily(async () => createApp(deps, await readAll()));
  return {
    async fetch(request, env) {
      if (paths.has(getPath(request))) return first.fetch(request, env);
      const app = await whole();
      return app.fetch(request, env);
    },
  };
}
