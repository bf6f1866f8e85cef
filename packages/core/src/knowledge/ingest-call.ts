/** The calls that bring documents into their base: `knowledge://base/document`, and `knowledge://base` for all. */
import { enqueue } from "../calls/enqueue.ts";
import { newToolCall } from "../calls/new-call.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { newId } from "../ids.ts";
import type { NewCall } from "../ports/calls.ts";
import type { Tool } from "../tools/tool.ts";
import { formatToolUri } from "../tools/uri.ts";

/** Beyond that a document is too large for how fast its vectors are made. */
const longestIngestMs = 780_000;

/**
 * Nothing outside is changed, and nothing is seen before all is there: whoever finds such a call without a holder may
 * simply do it again.
 */
export function ingestTool(knowledgeBase: string, document: string): Tool {
  return {
    uri: formatToolUri("knowledge", knowledgeBase, document),
    name: document === "" ? "knowledge_reindex" : "knowledge_ingest",
    description: "Brings documents into the index of their knowledge base.",
    parameters: { type: "object", properties: {}, additionalProperties: false },
    kind: "NATIVE",
    enabled: true,
    roles: [],
    scope: "manage",
    effect: "read",
    repeat: "natural",
    sensitive: false,
    service: "knowledge",
    requiredCredentials: [],
    timeoutMs: longestIngestMs,
    outputTrust: "own",
    hash: "",
  };
}

export async function newIngestCall(
  deps: CoreDeps,
  context: CallContext,
  place: { readonly knowledgeBase: string; readonly document: string; readonly parent?: NewCall["parentId"] },
): Promise<NewCall> {
  const { knowledgeBase, document, parent = null } = place;
  const tool = ingestTool(knowledgeBase, document);
  const uri = { scheme: "knowledge", service: knowledgeBase, tool: document, options: {} } as const;
  const { effect, repeat } = tool;
  return newToolCall(
    deps,
    context,
    { id: newId("call"), tool, uri, arguments: {}, effect, repeat },
    { route: "knowledge", parentId: parent, rootId: parent, state: "queued", async: true, slots: 1, delivery: "none" },
  );
}

/** Never throws: the row is on record. */
export function enqueueIngest(deps: CoreDeps, tenant: string, callId: string): Promise<void> {
  return enqueue(deps, { tenant, callId, expectedMs: longestIngestMs });
}
