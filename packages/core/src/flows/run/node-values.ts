/** What nodes say in their fields, read where a run comes to them. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import type { ConditionNode, FlowNode, FlowRetry, SwitchNode, WaitNode } from "../definition.ts";
import { instantsOf } from "../../schedules/zone.ts";
import type { TenantSettings } from "../../tenants/settings.ts";
import { fromRfc3339, wallFromRfc3339 } from "../../time.ts";
import { resolveValue, type ExpressionPlace, type FlowScope } from "../transform.ts";
import { StepFailed } from "./failures.ts";

/** Nodes that go on to others. */
export type WorkingNode = Exclude<FlowNode, { readonly kind: "end" | "fail" }>;

/** For people and addresses: what is no text is shown as JSON. */
export function asText(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

export const operatorForm: JsonObject = {
  type: "object",
  properties: {
    decision: {
      type: "string",
      enum: ["retry", "skip", "fail"],
      description: "Do it once more, go on as if it were done, or fail the step.",
    },
    output: {
      type: "string",
      description: "With `skip`: what the step is taken to have come to; an object or a list as its JSON.",
    },
  },
  required: ["decision"],
};

const longestWaitMs = 31_536_000_000;

function badTime(field: string, wanted: string): StepFailed {
  return new StepFailed({ code: "flow_expression_failed", message: `'${field}' has to come to ${wanted}.` });
}

export function isPure({ kind }: FlowNode): boolean {
  return kind === "condition" || kind === "switch" || kind === "transform";
}

export function earliest(...times: readonly (number | undefined)[]): number | undefined {
  const known = times.filter((time) => time !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

export function pauseMs({ backoff_ms: first, factor, max_backoff_ms: most }: FlowRetry, attempt: number): number {
  return Math.min(most, first * factor ** (attempt - 1));
}

export function isTrue(value: JsonValue): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (isJsonObject(value)) return Object.keys(value).length > 0;
  return Boolean(value);
}

/** Which way it went is on record: an expression may say something else another time. */
export function branchOf(next: string | undefined, value: JsonValue): JsonObject {
  return { next: next ?? null, value };
}

export function caseOf(node: SwitchNode, value: JsonValue): string | undefined {
  const key = typeof value === "string" ? value : JSON.stringify(value);
  const found = Object.hasOwn(node.cases, key) ? node.cases[key] : node.default;
  if (found !== undefined) return found;
  throw new StepFailed({
    code: "flow_expression_failed",
    message: `'on' came to ${key.slice(0, 100)}, for which there is no case and no 'default'.`,
  });
}

export function nextOf(node: ConditionNode | SwitchNode | WorkingNode, output: JsonValue): string | undefined {
  if (node.kind !== "condition" && node.kind !== "switch") return node.next;
  const next = isJsonObject(output) ? output["next"] : null;
  return typeof next === "string" ? next : undefined;
}

/** When a wait is over. @throws StepFailed for what is no time */
export async function timeFor(
  { duration_ms: duration, until }: WaitNode,
  scope: FlowScope,
  {
    place,
    now,
    settings,
  }: {
    readonly place: (field: string) => ExpressionPlace;
    readonly now: number;
    readonly settings: Pick<TenantSettings, "time_zone">;
  },
): Promise<number> {
  if (duration !== undefined) {
    const ms = Number(await resolveValue(duration, scope, place("duration_ms")));
    if (!Number.isFinite(ms) || ms < 0 || ms > longestWaitMs)
      throw badTime("duration_ms", `a number of milliseconds from 0 to ${longestWaitMs}`);
    return now + ms;
  }
  const time = readInstant(asText(await resolveValue(until ?? "", scope, place("until"))), settings.time_zone);
  if (time === undefined)
    throw badTime(
      "until",
      "a time as RFC 3339 has it, as in '2026-12-01T09:00:00Z', or without an offset one that clocks in the tenant's 'time_zone' show",
    );
  return time;
}

/** Without an offset it is on the clock of the zone, as in schedules, and not on that of whichever machine reads it. */
function readInstant(text: string, timeZone: string): number | undefined {
  const wall = wallFromRfc3339(text);
  return wall === undefined ? fromRfc3339(text) : instantsOf(wall, timeZone)[0];
}
