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
const readinessSchema = z.object({ status: z.enum(["ok", "degraded", "failing"]), checks: z.array(checkSchema) });

export const ready = defineRoute({
  method: "get",
  path: "/health/ready",
  summary: "Whether requests can be served: database, blob store, master key and credentials",
  tags,
  scope: null,
  admission: "none",
  responses: {
    200: { description: "They can; `degraded`: some cannot, the failing checks say which", schema: readinessSchema },
    503: { description: "They cannot; the failing checks say why", schema: readinessSchema },
  },
  async handler(c, { app }) {
    const checks = await checkReadiness(app);
    const failing = checks.filter(({ ok }) => !ok);
    const serves = failing.every(({ isPartial }) => isPartial === true);
    const status = failing.length === 0 ? "ok" : serves ? "degraded" : "failing";
    const shown = checks.map(({ isPartial: _isPartial, ...check }) => check);
    return c.json({ status, checks: shown }, serves ? 200 : 503);
  },
});
