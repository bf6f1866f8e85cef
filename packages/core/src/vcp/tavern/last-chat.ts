/**
 * `{{LastChatTime}}` and `{{TimeSinceLastChat}}` in rules of presets: the record of calls knows when there was a chat
 * before this one, wherever it was answered. What the record no longer holds (`calls_retention_days`) was not.
 */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { exchangePaths } from "../../models/special.ts";
import { dateTexts } from "../placeholders/dates.ts";

export interface AskedChat {
  /** The session that is meant: that of the preset or of the request. One that was made for the chat is none. */
  readonly session: string | undefined;
  /** The chat that asks. */
  readonly callId: string;
}

/** Beside chats there are those that chats have asked for, and what is asked of other models. */
const mostLookedAt = 50;

/** @returns when the caller's chat before this one began: in the session, or without one the latest of all */
export async function lastChatAt(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant, caller }: Pick<CallContext, "tenant" | "caller">,
  { session, callId }: AskedChat,
): Promise<number | undefined> {
  const filter = {
    kind: "chat",
    callerId: caller.id,
    ...(session === undefined ? {} : { sessionId: session }),
  } as const;
  const { data } = await repos.calls.list(tenant, filter, { limit: mostLookedAt, order: "desc" });
  return data.find(({ id, parentId, uri }) => id !== callId && parentId === null && !(uri in exchangePaths))?.createdAt;
}

const unknown = "首次对话";

/** As the Chinese locale writes them. */
export async function lastChatTexts({
  at,
  now,
  zone,
}: {
  readonly at: number | undefined;
  readonly now: number;
  readonly zone: string;
}): Promise<Readonly<Record<"LastChatTime" | "TimeSinceLastChat", string>>> {
  if (at === undefined) return { LastChatTime: unknown, TimeSinceLastChat: unknown };
  const texts = await dateTexts(at, zone, new Set(["Date", "Time"]));
  return { LastChatTime: `${texts.get("Date")} ${texts.get("Time")}`, TimeSinceLastChat: durationText(now - at) };
}

const units = [
  [86_400_000, "天"],
  [3_600_000, "小时"],
  [60_000, "分钟"],
] as const;

/** The two largest units. */
function durationText(ms: number): string {
  let rest = Math.max(0, ms);
  const parts: string[] = [];
  for (const [size, name] of units) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count}${name}`);
  }
  return parts.length === 0 ? "不到1分钟" : parts.slice(0, 2).join("");
}
