/** Health: cheap, alive, ready (design "Public contract", operator routes). */
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { checkReadiness } from "../readiness.ts";

const statusSchema = z.object({ status: z.literal("ok"), version: z.string() });
const tags = ["health"];

export const status = defineRoute({
  method: "get",
  path: "/health",
  summary: "Whether the process answers",
  tags,
  scope: null,
  admission: "none",
  responses: { 200: { description: "It does", schema: statusSchema } },
  handler: (c, { app }) => c.json({ status: "ok", version: app.version }),
});

export const live = defineRoute({
  method: "get",
  path: "/health/live",
  summary: "Whether the process should go on running",
  tags,
  scope: null,
  admission: "none",
  responses: { 200: { description: "It should", schema: statusSchema } },
  handler: (c, { app }) => c.json({ status: "ok", version: app.version }),
});

const checkSchema = z.object({ name: z.string(), ok: z.boolean(), detail: z.string().optional() });
const readinessSchema = z.object({ status: z.enum(["ok", "failing"]), checks: z.array(checkSchema) });

export const ready = defineRoute({
  method: "get",
  path: "/health/ready",
  summary: "Whether requests can be served: database, blob store and master key",
  tags,
  scope: null,
  admission: "none",
  responses: {
    200: { description: "They can", schema: readinessSchema },
    503: { description: "They cannot; the failing checks say why", schema: readinessSchema },
  },
  async handler(c, { app }) {
    const checks = await checkReadiness(app);
    const ok = checks.every((check) => check.ok);
    return c.json({ status: ok ? "ok" : "failing", checks }, ok ? 200 : 503);
  },
});
