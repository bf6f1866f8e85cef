/** `GET /openapi.json`. The document is made at the first request and kept: a cold start does not pay for it. */
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { answerPage } from "../entity-tag.ts";
import { pagesOf } from "../pages.ts";

export const openapi = defineRoute({
  method: "get",
  path: "/openapi.json",
  summary: "This API as an OpenAPI 3.1 document",
  tags: ["documentation"],
  scope: null,
  admission: "none",
  responses: { 200: { description: "The document", schema: z.looseObject({ openapi: z.literal("3.1.0") }) } },
  handler: (c, input) => answerPage(c, pagesOf(input).openapi, { "content-type": "application/json" }),
});
