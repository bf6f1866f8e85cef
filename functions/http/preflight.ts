/** Answers the question a browser asks before it sends a request with a key (CORS preflight). */
import type { AppContext } from "./app-env.ts";

export function answerPreflight(c: AppContext): Response {
  c.get("exchange").route = "preflight";
  return c.body(null, 204, {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    // `*` does not cover Authorization, so what browsers ask for is named back where it is a header name.
    "access-control-allow-headers": namedHeaders(c.req.header("access-control-request-headers")),
    "access-control-max-age": "7200",
  });
}

function namedHeaders(asked: string | undefined): string {
  const names = (asked ?? "").split(",").map((name) => name.trim().toLowerCase());
  return ["authorization", "content-type", ...names.filter((name) => /^[a-z0-9-]{1,64}$/.test(name))]
    .slice(0, 64)
    .join(", ");
}
