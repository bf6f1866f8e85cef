/** The renderings of the route table, each made once per app. Read when the first of them is asked for. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { AppDeps } from "./app-env.ts";
import type { RouteModule } from "./define-route.ts";
import { renderDocs, renderLlmsText } from "./docs.ts";
import { toPage, type Page } from "./entity-tag.ts";
import { toOpenApi, type OpenApiDocument } from "./openapi.ts";

interface Pages {
  readonly openapi: Page;
  readonly docs: Page;
  readonly llms: Page;
  /** What was asked for of single tags. */
  readonly ofTags: Map<string, Page>;
  readonly document: OpenApiDocument;
}

interface Source {
  readonly app: AppDeps;
  readonly routes: Readonly<Record<string, RouteModule>>;
}

const made = new WeakMap<AppDeps, Pages>();

export function pagesOf({ app, routes }: Source): Pages {
  const known = made.get(app);
  if (known !== undefined) return known;
  const document = toOpenApi(routes, { version: app.version, url: app.core.publicUrl });
  const pages = {
    openapi: toPage(JSON.stringify(document)),
    docs: toPage(renderDocs(document)),
    llms: toPage(renderLlmsText(document)),
    ofTags: new Map<string, Page>(),
    document,
  };
  made.set(app, pages);
  return pages;
}

/**
 * The OpenAPI document of the routes with one tag, for who cannot read all of it.
 * @throws GatewayError `invalid_request` naming the tags that there are
 */
export function openApiOf(source: Source, tag: string): Page {
  const { ofTags, document } = pagesOf(source);
  const known = ofTags.get(tag);
  if (known !== undefined) return known;
  if (!document.tags.some(({ name }) => name === tag)) {
    const names = document.tags.map(({ name }) => name).join(", ");
    throw new GatewayError("invalid_request", `There is no tag '${tag}'; there are: ${names}.`, { param: "tag" });
  }
  const { app, routes } = source;
  const tagged = Object.fromEntries(
    Object.entries(routes).filter(
      ([
        ,
        {
          tags: [first],
        },
      ]) => first === tag,
    ),
  );
  const page = toPage(JSON.stringify(toOpenApi(tagged, { version: app.version, url: app.core.publicUrl })));
  ofTags.set(tag, page);
  return page;
}
