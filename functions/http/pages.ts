/** The three renderings of the route table, made once per app. */
import type { AppDeps } from "./app-env.ts";
import type { RouteModule } from "./define-route.ts";
import { renderDocs, renderLlmsText } from "./docs.ts";
import { toPage, type Page } from "./entity-tag.ts";
import { toOpenApi } from "./openapi.ts";

export interface Pages {
  readonly openapi: Page;
  readonly docs: Page;
  readonly llms: Page;
}

const made = new WeakMap<AppDeps, Pages>();

export function pagesOf({
  app,
  routes,
}: {
  readonly app: AppDeps;
  readonly routes: Readonly<Record<string, RouteModule>>;
}): Pages {
  const known = made.get(app);
  if (known !== undefined) return known;
  const document = toOpenApi(routes, { version: app.version, url: app.core.publicUrl });
  const pages = {
    openapi: toPage(JSON.stringify(document)),
    docs: toPage(renderDocs(document)),
    llms: toPage(renderLlmsText(document)),
  };
  made.set(app, pages);
  return pages;
}
