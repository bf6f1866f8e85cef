/**
 * What was used: calls, tokens and cost, by day, key, user, model or tool. A caller sees its own usage;
 * with the scope `calls` that of the tenant.
 */
import { hasScope } from "@toolyard/core/callers/caller";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import { usageGroups, type UsageGroup, type UsageSum } from "@toolyard/core/ports/budgets";
import type { PageRequest } from "@toolyard/core/ports/page";
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { idOf } from "./shared.ts";

const dayMs = 86_400_000;
const defaultDays = 31;

const daySchema = z.iso.date().meta({ description: "A day in UTC.", example: "2026-11-01" });

const usageQuery = pageQuery.extend({
  group_by: z.enum(usageGroups).default("day"),
  from: daySchema.optional().meta({ description: `First day; default: ${defaultDays} days before 'to'.` }),
  to: daySchema.optional().meta({ description: "The day after the last one; default: tomorrow." }),
  order: pageQuery.shape.order.meta({ description: "By what the usage is grouped by." }),
});

const usageSchema = z.strictObject({
  id: z.string().meta({ description: "For 'after'.", example: "day:2026-11-27" }),
  object: z.literal("usage"),
  group: z.string().nullable().meta({ description: "Day, id or name; null: calls that have none." }),
  calls: z.int().meta({ description: "Calls that ran and have ended." }),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  cached_tokens: z.int().meta({ description: "Of the prompt tokens." }),
  micros: z.int().meta({ description: "Cost in micro-units: model tokens and tool calls." }),
  context_tokens: z
    .int()
    .meta({ description: "Schemas and results of tool calls in prompts; among the prompt tokens." }),
  context_micros: z.int().meta({ description: "What those cost; among the cost of the chats." }),
  estimated_calls: z.int().meta({ description: "Calls some of whose tokens the back end did not tell." }),
});

function viewUsage(group: UsageGroup): (sum: UsageSum) => z.output<typeof usageSchema> {
  return (sum) => ({
    id: `${group}:${sum.group}`,
    object: "usage",
    group: sum.group === "" ? null : sum.group,
    calls: sum.calls,
    prompt_tokens: sum.promptTokens,
    completion_tokens: sum.completionTokens,
    cached_tokens: sum.cachedTokens,
    micros: sum.micros,
    context_tokens: sum.contextTokens,
    context_micros: sum.contextMicros,
    estimated_calls: sum.estimatedCalls,
  });
}

function daysOf(query: z.output<typeof usageQuery>, now: number): { readonly from: number; readonly to: number } {
  const to = query.to === undefined ? now - (now % dayMs) + dayMs : Date.parse(query.to);
  const from = query.from === undefined ? to - defaultDays * dayMs : Date.parse(query.from);
  if (from < to) return { from, to };
  throw new GatewayError("invalid_request", "Query field 'to' must be a day after 'from'.", { param: "to" });
}

/** Pages end at `{group_by}:{group}`. */
function pageOf(query: z.output<typeof usageQuery>): PageRequest {
  const page = toPageRequest(query);
  const prefix = `${query.group_by}:`;
  if (page.after === undefined || !page.after.startsWith(prefix)) return page;
  return { ...page, after: page.after.slice(prefix.length) };
}

/** A call that failed, since nothing is there, has been made all the same. */
async function arrangeUsage(owner: IsolationDriver): Promise<string> {
  const name = newId("request");
  await owner.send("post", "/v1/plugins", {
    schema_version: "v1",
    name,
    description: "Is called once.",
    parameters: { type: "object", properties: {} },
    execution: { method: "GET", base_url: "http://127.0.0.1:9/nothing", param_placement: "query" },
  });
  await owner.send("post", "/v1/tools/invoke", { name, arguments: {} }).catch(() => undefined);
  return name;
}

export const listUsage = defineRoute({
  method: "get",
  path: "/v1/usage",
  summary: "Calls, tokens and cost by day, key, user, model or tool",
  description:
    "One's own; with the scope 'calls' those of the tenant. Counted on the day on which a call ended, and kept for 400 days.",
  tags: ["usage"],
  scope: null,
  list: true,
  request: { query: usageQuery },
  responses: { 200: { description: "A page of sums", schema: listSchema(usageSchema) } },
  isolation: { kind: "list", arrange: arrangeUsage, query: { group_by: "tool" } },
  async handler(c, { core, tenant, caller, query }) {
    const groupBy = query.group_by;
    const span = daysOf(query, core.clock.now());
    const whose = hasScope(caller, "calls") ? {} : { callerId: caller.id };
    const page = await core.repos.usage.sum(tenant, { groupBy, ...span, ...whose }, pageOf(query));
    return c.json(toList(page, viewUsage(groupBy), idOf));
  },
});
