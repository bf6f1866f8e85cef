/** Metrics for Prometheus (CHAT-15; docs/metrics.md has their names). */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";

export const metrics = defineRoute({
  method: "get",
  path: "/metrics",
  summary: "What this process has counted, as Prometheus reads it",
  tags: ["operator"],
  scope: "operator",
  responses: { 200: { description: "The metrics.", schema: z.string(), mediaType: "text/plain" } },
  isolation: { kind: "nothing-owned", reason: "counts of the whole process, for the operator" },
  handler: async (c, { app }) => {
    if (app.metricsText === undefined) {
      throw new GatewayError(
        "not_found",
        "Functions write their metrics into the log, where CloudWatch takes them from.",
      );
    }
    return c.body(await app.metricsText(), 200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" });
  },
});
