/** Definitions of HTTP tools at a stub, as `POST /v1/plugins` takes them. */
import type { HttpStub } from "./http-stub.ts";

type Change = Readonly<Record<string, unknown>>;

/** GET with one required text `q`, in the query. */
export function readingTool(backEnd: HttpStub, name = "lookup", execution: Change = {}): Change {
  return {
    name,
    parameters: { type: "object", properties: { q: { type: "string" } }, required: ["q"] },
    execution: {
      method: "GET",
      base_url: `${backEnd.url}/${name}`,
      content_type: "application/json",
      param_placement: "query",
      ...execution,
    },
  };
}

/** POST with one required text `sku`, as a JSON body. */
export function writingTool(backEnd: HttpStub, name = "create_order", execution: Change = {}): Change {
  return {
    name,
    parameters: {
      type: "object",
      properties: { sku: { type: "string" }, qty: { type: "integer" } },
      required: ["sku"],
    },
    execution: {
      method: "POST",
      base_url: `${backEnd.url}/${name}`,
      content_type: "application/json",
      param_placement: "body",
      ...execution,
    },
  };
}
