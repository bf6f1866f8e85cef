/** One request that comes by itself, in no model's reply: the first block counts, whatever stands around it. */
import type { JsonObject } from "../../json.ts";
import { startMarker } from "./markers.ts";
import { ToolRequestScanner } from "./scanner.ts";
import { ofMcpCall, type ToolRequest } from "./tool-request.ts";

/** The request, or what is wrong with the text. */
export function readRequest(text: string): ToolRequest | string {
  if (text.trim() === "") return "Request body must be a non-empty plain text.";
  const mcpCall = ofMcpCall(text);
  if (mcpCall !== undefined) return mcpCall;
  const start = text.indexOf(startMarker);
  const scanner = new ToolRequestScanner({ isBody: true });
  scanner.feed(start < 0 ? "" : text.slice(start));
  const [request] = scanner.end().requests;
  if (request?.flaw !== undefined) return `Malformed request: ${request.flaw}`;
  if (request !== undefined) return request;
  return start < 0 || !scanner.hasSeenBlock
    ? "Malformed request: Missing TOOL_REQUEST markers."
    : "Malformed request: tool_name not found within the request block.";
}

/** Are there blocks that would not count? */
export function holdsSeveral(text: string): boolean {
  return text.indexOf(startMarker) !== text.lastIndexOf(startMarker);
}

/** As if it had been written as a block. */
export function requestOf(name: string, args: JsonObject): ToolRequest {
  return { name, args, archery: false, archeryNoReply: false, markHistory: false, river: null, vref: null };
}
