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

/** What a request of the stateless era carries along. */
export function statelessMeta(capabilities: JsonObject): Record<string, JsonValue> {
  return {
    "io.modelcontextprotocol/protocolVersion": statelessRevision,
    "io.modelcontextprotocol/clientInfo": clientInfo,
    "io.modelcontextprotocol/clientCapabilities": capabilities,
  };
}
