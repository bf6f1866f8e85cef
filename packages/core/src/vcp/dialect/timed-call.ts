/**
 * `timely_contact`: a request that is to run at a time. It becomes a call on record that is due then (calls/postpone),
 * whatever becomes of this process; the model gets the receipt.
 */
import { mayUseTool } from "../../callers/caller.ts";
import { postpone } from "../../calls/postpone.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { withDelivery } from "../../errors/delivery.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { offsetAt } from "../../schedules/zone.ts";
import type { FoundTool } from "../../tools/catalog.ts";
import { isAskedFromOutside, type DispatchItem } from "../../tools/prepare.ts";
import { isVcpPlugin, type Tool } from "../../tools/tool.ts";
import { localTimestamp } from "../plugins/outcome.ts";

const key = "timely_contact";

export function isTimed(args: JsonObject): boolean {
  const contact = args[key];
  return typeof contact === "string" && contact !== "";
}

interface Timed {
  readonly found: FoundTool;
  readonly args: JsonObject;
  readonly contact: JsonValue | undefined;
}

/** The call that puts it on record; or what is wrong with the time. */
export function planTimedCall(
  deps: CoreDeps,
  context: CallContext,
  { found, args, contact }: Timed,
): DispatchItem | string {
  const { tool, uri } = found;
  const written = typeof contact === "string" ? contact : "";
  const at = readTime(written, context.config.settings.time_zone);
  const now = deps.clock.now();
  if (at === undefined) {
    return `无效的 'timely_contact' 时间格式: '${written}'。请使用 YYYY-MM-DD-HH:mm 格式，或可被 Date 解析的未来时间。`;
  }
  if (at <= now) return `无效的 'timely_contact' 时间: '${written}'。不能设置为过去或当前时间。`;
  if (!mayUseTool(context.caller, tool)) return `'${tool.name}' is not a tool of this caller.`;
  if (tool.sensitive) return needsApproval(tool);
  const { [key]: _contact, ...rest } = args;
  const meta = {
    requestedAt: localTimestamp(new Date(now)),
    scheduledFor: localTimestamp(new Date(at)),
    triggeredAt: localTimestamp(new Date(at)),
    originalTimelyContact: written,
    source: "timely_contact",
  };
  return {
    target: tool.uri,
    arguments: rest,
    found: {
      tool: { ...tool, effect: "write", outward: false, outputTrust: "own" },
      uri,
      adapter: {
        resolve: () => undefined,
        list: () => [],
        invoke: async (call, invocation) => {
          const asked = { tool, effect: tool.effectOf?.(rest) ?? tool.effect, readOutside: call.readOutside === true };
          if (isAskedFromOutside(asked, invocation))
            throw withDelivery(new GatewayError("invalid_request", needsApproval(tool)), "not_sent");
          const delayMs = at - deps.clock.now();
          const callId = newId("call");
          const timed = isVcpPlugin(tool) ? { __vcp_timed_call: { taskId: callId, ...meta } } : {};
          await postpone(
            deps,
            invocation,
            { tool },
            { callId, delayMs, uri, arguments: { ...call.arguments, ...timed } },
          );
          return { mediaType: "text/plain", body: receiptOf(tool.name, callId, meta) };
        },
      },
    },
  };
}

function needsApproval({ name }: Tool): string {
  return `'${name}' needs a person's approval, which a call at a later time cannot have; ask for it without 'timely_contact'.`;
}

function receiptOf(
  name: string,
  id: string,
  { requestedAt, scheduledFor }: { readonly requestedAt: string; readonly scheduledFor: string },
): string {
  return `任务已成功调度。\n工具: ${name}\n任务ID: ${id}\n发起时间: ${requestedAt}\n计划时间: ${scheduledFor}\n到点执行时系统会注入 __vcp_timed_call 标准元信息。`;
}

const form = /^(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[-T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,3})\d{0,6})?)?)?$/;
/** What says by itself where its clock hangs. */
const zone = /\d\s*(?:[AP]M\s*)?Z\b|\b(?:GMT|UTC?|[CEMP][DS]T)\b|:\d{2}(?:\.\d+)?(?:\s*[AP]M)?\s*[+-]\d|[a-z]\/[a-z]/i;

/** Milliseconds; undefined for what is no time. What names no zone is meant in the tenant's. */
export function readTime(written: string, timeZone: string): number | undefined {
  const text = written.trim();
  const parts = form.exec(text);
  if (parts === null) return readWords(text, timeZone);
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = parts
    .slice(1, 7)
    .map((part) => Number(part ?? 0));
  const date = new Date(Date.UTC(year, month - 1, day));
  // A 30th of February is a slip of the pen, not the 2nd of March.
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  if (hour > 23 || minute > 59 || second > 59) return undefined;
  const thousandths = Number((parts[7] ?? "").padEnd(3, "0"));
  return onClockOf(timeZone, Date.UTC(year, month - 1, day, hour, minute, second, thousandths));
}

/** Short for zones that `Date` does not know. In brackets it would pass over them, and the clock be taken for the tenant's. */
const unknownZone = /\(\s*(?!SAT\b|OCT\b)[A-Z]{2,3}T\s*\)/;

/** To `Date` it is Chicago's; where the clock shows China's time, it is that. */
const cst = /\bCST\b/i;
const chinaMs = 8 * 3_600_000;

/** As `Date` reads it, which passes over what stands in brackets: the zone counts there as well. */
function readWords(text: string, timeZone: string): number | undefined {
  const bare = text.replaceAll(/[()]/g, " ");
  if (cst.test(bare)) {
    const rest = bare.replace(cst, " ");
    // An offset beside it is what counts: Go prints both.
    const stated = zone.test(rest) ? Date.parse(rest) : Number.NaN;
    if (!Number.isNaN(stated)) return stated;
    const wall = Date.parse(`${text.replace(cst, " ")} UTC`);
    if (!Number.isNaN(wall) && offsetAt(wall, timeZone) === chinaMs) return onClockOf(timeZone, wall);
  }
  const hasZone = zone.test(bare);
  if (!hasZone && unknownZone.test(text)) return undefined;
  const isOutside = !hasZone || zone.test(text.replaceAll(/\([^()]*\)/g, " "));
  const read = isOutside ? text : bare;
  const parsed = Date.parse(hasZone ? read : `${read} UTC`);
  return Number.isNaN(parsed) ? undefined : hasZone ? parsed : onClockOf(timeZone, parsed);
}

/** @param wall what the clock there shows, as if it hung in UTC */
function onClockOf(timeZone: string, wall: number): number {
  // The offset at the time itself may be another one than at the guess.
  const guess = wall - offsetAt(wall, timeZone);
  return wall - offsetAt(guess, timeZone);
}
