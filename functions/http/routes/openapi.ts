/** `GET /openapi.json`. The document, and what makes it, is read at the first request and kept: a cold start does not pay for it. */
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { answerPage } from "../entity-tag.ts";

export const openapi = defineRoute({
  method: "get",
  path: "/openapi.json",
  summary: "This API as an OpenAPI 3.1 document",
  tags: ["documentation"],
  scope: null,
  admission: "none",
  request: {
    query: z.object({
      tag: z.string().max(64).optional().meta({ description: "The routes of this group alone.", example: "plugins" }),
    }),
  },
  responses: { 200: { description: "The document", schema: z.looseObject({ openapi: z.literal("3.1.0") }) } },
  async handler(c, input) {
    const { tag } = input.query;
    const { openApiOf, pagesOf } = await import("../pages.ts");
    const page = tag === undefined ? pagesOf(input).openapi : openApiOf(input, tag);
    return answerPage(c, page, { "content-type": "application/json" });
  },
});
