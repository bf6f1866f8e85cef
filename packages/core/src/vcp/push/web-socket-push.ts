/**
 * `webSocketPush` of a manifest (VCP specification s. 3.4, 4.1, 5; VCP-12): what a plugin came to is told to
 * connected clients of the tenant, of one kind or all of them. Nothing is written where nobody listens.
 */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { toGatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJsonExactly, type JsonObject, type JsonValue } from "../../json.ts";
import { publish } from "../../realtime/publish.ts";
import type { Publication } from "../../realtime/publication.ts";

/** As the manifest has it. */
export interface WebSocketPush {
  readonly enabled: boolean;
  /** A result that is an object is the frame, a callback's body where it has a `type`. */
  readonly usePluginResultAsMessage: boolean;
  readonly messageType?: string;
  /** Null: every client. */
  readonly targetClientType: string | null;
}

export type PushDeps = Pick<AdapterDeps, "repos" | "tellNow" | "log">;

export interface PluginSaid {
  readonly tenant: string;
  readonly plugin: string;
  readonly callId: string;
  /** Of a callback its body; else the plugin's result. */
  readonly result: JsonValue;
  readonly from: "callback" | "result";
}

/** Never throws: what a plugin did is done, whether it is told or not. */
async function pushPluginResult(deps: PushDeps, push: WebSocketPush, said: PluginSaid): Promise<void> {
  const publication = publicationOf(push, said);
  if (publication === undefined) return;
  const { tenant, plugin, callId } = said;
  try {
    const heard = await publish(deps, tenant, [publication]);
    if (heard > 0) await deps.tellNow();
  } catch (thrown) {
    deps.log.log("warn", "a plugin's result was not pushed", {
      tenant,
      plugin,
      call_id: callId,
      code: toGatewayError(thrown).code,
    });
  }
}

/** Pure: what clients are to be told of it; `undefined` where the manifest does not want it. */
export function publicationOf(push: WebSocketPush, said: Omit<PluginSaid, "tenant">): Publication | undefined {
  if (!push.enabled) return undefined;
  const frame = frameOf(push, said);
  const { type } = frame;
  return {
    type: typeof type === "string" ? type : defaultType(said),
    audience:
      push.targetClientType === null ? { kind: "tenant" } : { kind: "client_type", value: push.targetClientType },
    data: frame,
    bare: true,
    callId: said.callId,
  };
}

/**
 * Of the result of a call that has completed. Told after the fact: whoever listens knows of the call by its id.
 * @param result as the plugin gave it; text that holds JSON is that JSON
 */
export async function pushResult(
  deps: PushDeps,
  { tenant, redactor }: Pick<CallContext, "tenant" | "redactor">,
  {
    plugin: { name, manifest },
    callId,
    result,
  }: {
    readonly plugin: { readonly name: string; readonly manifest: { readonly webSocketPush: WebSocketPush } };
    readonly callId: string;
    readonly result: JsonValue | undefined;
  },
): Promise<void> {
  if (!manifest.webSocketPush.enabled || result === undefined) return;
  const text = redactor.redact(typeof result === "string" ? result : JSON.stringify(result));
  const told = { tenant, plugin: name, callId, result: parseJsonExactly(text) ?? text, from: "result" } as const;
  await pushPluginResult(deps, manifest.webSocketPush, told);
}

/** Pure: the frame that clients get. */
export function frameOf(
  { usePluginResultAsMessage, messageType }: WebSocketPush,
  said: Pick<PluginSaid, "plugin" | "from" | "result">,
): JsonObject {
  const { result, from } = said;
  // The body of a callback has a form of its own, without the type by which clients know a frame.
  const isFrame = isJsonObject(result) && (from === "result" || typeof result["type"] === "string");
  if (usePluginResultAsMessage && isFrame) return result;
  return { type: messageType ?? defaultType(said), data: result };
}

function defaultType({ plugin, from }: Pick<PluginSaid, "plugin" | "from">): string {
  return from === "callback" ? "plugin_callback_notification" : `vcp_tool_result_${plugin}`;
}
