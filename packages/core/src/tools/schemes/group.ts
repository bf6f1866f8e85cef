/**
 * `group://{id}`: a turn of a group chat. Not listed: whoever may chat may talk in the rooms that it may see, and the
 * room itself says who may. What a turn is made of is read when there is one.
 */
import { createHash } from "node:crypto";
import type { CoreDeps } from "../../core-deps.ts";
import { isId } from "../../ids.ts";
import type { JsonObject } from "../../json.ts";
import type { ToolAdapter } from "../adapter.ts";
import type { Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri } from "../uri.ts";

/** As converseSchema has it, spelled out so that nobody has to read that for a look at the address. */
const parameters: JsonObject = {
  type: "object",
  properties: { content: { type: "string" }, name: { type: "string" }, redo: { type: "boolean" } },
  additionalProperties: false,
};

const hash = createHash("sha256")
  .update(JSON.stringify(["group", parameters]))
  .digest("hex");

/** Longest turn; the room's own limit ends it. */
const longestMs = 600_000;

/** @param core what all adapters are a part of */
export function createGroupAdapter(core: () => CoreDeps): ToolAdapter {
  return {
    options: dispatcherOptions,
    resolve: ({ service }) => (isId("groupChat", service) ? toolFor(service) : undefined),
    list: () => [],
    async invoke(call, context) {
      const { converse } = await import("../../group-chats/converse.ts");
      return converse(core(), call, context);
    },
  };
}

function toolFor(id: string): Tool {
  return {
    uri: formatToolUri("group", id),
    name: "group_chat",
    description: "Says something in a group chat and has its agents answer.",
    parameters,
    kind: "AGENT",
    enabled: true,
    // Whatever tools a key is bound to: those bind what the agents run.
    scope: "chat",
    roles: [],
    effect: "write",
    repeat: "resume",
    sensitive: false,
    service: formatToolUri("group", id),
    requiredCredentials: [],
    timeoutMs: longestMs,
    outputTrust: "outside",
    hash,
  };
}
