/**
 * Revisions of the Model Context Protocol that are spoken, and what they call things. There are two eras:
 * until 2025-11-25 a session begins with `initialize`; since 2026-07-28 every request says all there is
 * to say, and nothing is held.
 */
import type { JsonObject, JsonValue } from "../json.ts";

/** `session`: begun with `initialize`. `stateless`: each request stands alone. */
export type Era = "session" | "stateless";

export const statelessRevision = "2026-07-28";

/** Newest first; what `initialize` asks for is the first. */
const sessionRevisions = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] as const;
export const newestSessionRevision = sessionRevisions[0];

export function isSessionRevision(version: string): boolean {
  return sessionRevisions.some((known) => known === version);
}

export const knownRevisions: readonly string[] = [statelessRevision, ...sessionRevisions];

/** Codes of JSON-RPC and MCP that something follows from. */
export const rpcCodes = {
  parseError: -32_700,
  invalidRequest: -32_600,
  internalError: -32_603,
  methodNotFound: -32_601,
  invalidParams: -32_602,
  headerMismatch: -32_020,
  missingCapability: -32_021,
  unsupportedVersion: -32_022,
} as const;

const statelessCodes: readonly number[] = [
  rpcCodes.headerMismatch,
  rpcCodes.missingCapability,
  rpcCodes.unsupportedVersion,
];

/** Errors that only servers of the stateless era give. */
export function isStatelessError(code: number): boolean {
  return statelessCodes.includes(code);
}

/** How this gateway introduces itself. */
export const clientInfo: JsonObject = { name: "toolyard", version: "0.1.0" };

/** Names of what messages of the stateless era carry along in `_meta`. */
export const metaKeys = {
  version: "io.modelcontextprotocol/protocolVersion",
  clientInfo: "io.modelcontextprotocol/clientInfo",
  clientCapabilities: "io.modelcontextprotocol/clientCapabilities",
  serverInfo: "io.modelcontextprotocol/serverInfo",
  subscription: "io.modelcontextprotocol/subscriptionId",
} as const;

/** The extension by which a call may answer with a task to ask about later. */
export const tasksExtension = "io.modelcontextprotocol/tasks";

/** What a request of the stateless era carries along. */
export function statelessMeta(capabilities: JsonObject): Record<string, JsonValue> {
  return {
    [metaKeys.version]: statelessRevision,
    [metaKeys.clientInfo]: clientInfo,
    [metaKeys.clientCapabilities]: capabilities,
  };
}
