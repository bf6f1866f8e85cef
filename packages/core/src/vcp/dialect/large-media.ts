/**
 * Pictures and files of a result that are more than a message holds (VCP specification s. 4.6: base64 goes by the
 * file API; VCP-10, VCP-16): each becomes a file of the session, and its address takes its place, under which the
 * model can give it to another tool.
 */
import type { CallContext } from "../../context.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { createWorkspace, type WorkspaceDeps } from "../../workspace/workspace.ts";
import { contentOf, dataOfPart, describePart } from "../plugins/reply.ts";

export interface LargeResult {
  readonly callId: string;
  readonly value: JsonValue;
  /** Characters of media that stay in the message. */
  readonly inline: number;
}

/** The same result with what is too much kept elsewhere. Never throws: a file that cannot be kept is with its call. */
export async function withMediaApart(
  deps: WorkspaceDeps,
  context: CallContext,
  { callId, value, inline }: LargeResult,
): Promise<JsonValue> {
  const parts = contentOf(value);
  if (parts === undefined || !isJsonObject(value)) return value;
  let left = inline;
  const content: JsonObject[] = [];
  for (const [at, part] of parts.entries()) {
    const data = dataOfPart(part);
    const isMedia = data?.startsWith("data:") === true;
    if (!isMedia || data.length <= left) {
      if (isMedia) left -= data.length;
      content.push(part);
      continue;
    }
    const where = await keep(deps, context, { callId, at, data });
    content.push({ type: "text", text: `${describePart(part)} ${where}` });
  }
  if (Array.isArray(value["content"])) return { ...value, content };
  const { data } = value;
  return { ...value, data: { ...(isJsonObject(data) ? data : {}), content } };
}

interface Medium {
  readonly callId: string;
  readonly at: number;
  readonly data: string;
}

/** @returns where it is, in words for the model */
async function keep(deps: WorkspaceDeps, context: CallContext, medium: Medium): Promise<string> {
  const { tenant, sessionId: session, config } = context;
  const { callId } = medium;
  const withCall = `is more than a message holds; it is kept with its call: GET /v1/calls/${callId}/result`;
  if (session === undefined) return withCall;
  const { mediaType, body, path } = toFile(medium);
  try {
    const limit = config.settings.workspace_bytes;
    await createWorkspace(deps).write({ tenant, session, path }, body, { mediaType, limit });
    return `is more than a message holds, and a file of this session: file:///${path}`;
  } catch (thrown) {
    const { code, message } = toGatewayError(thrown);
    deps.log.log("warn", "a plugin's file was not kept in its session", { tenant, call_id: callId, code });
    return code === "workspace_full" ? `${withCall}. ${message}` : withCall;
  }
}

function toFile({ callId, at, data }: Medium): {
  readonly path: string;
  readonly mediaType: string;
  readonly body: Uint8Array;
} {
  const [, mediaType = "application/octet-stream"] = /^data:([\w.+-]{1,100}\/[\w.+-]{1,100})/.exec(data) ?? [];
  const ending = /\/(?:x-)?([a-z0-9]{1,8})$/.exec(mediaType)?.[1] ?? "bin";
  const body = Buffer.from(data.slice(data.indexOf(",") + 1), "base64");
  return { path: `vcp-results/${callId}-${at + 1}.${ending}`, mediaType, body };
}
