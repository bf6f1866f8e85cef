/** Who is asking, and the one decision of what they may list and run (CHAT-11, BLIND-9). */
import * as z from "zod";
import { encodeAddress } from "../tools/uri.ts";

export const scopes = [
  /** Chats with their tools, models, embeddings and pictures. */
  "chat",
  /** Tools without a chat: `POST /v1/tools/invoke`, `/mcp`, flows, schedules. */
  "tools",
  /** Send a `runtime_config` inline (BLIND-7). */
  "runtime_config",
  /** Read, cancel and replay calls of the whole tenant, not only one's own. */
  "calls",
  /** Approve or reject calls that wait. */
  "approve",
  /** Plugins, credentials, providers, keys and settings of the tenant. */
  "manage",
  /** Be a node: offer tools and carry out calls of them. */
  "node",
  /** As a node, hold subscriptions: be given access to their brokers, and bring their messages. */
  "consume",
  /** As a node, hold modules of VCP plugins: be given their files and configuration. */
  "modules",
] as const;
export const scopeSchema = z.enum(scopes);
export type Scope = (typeof scopes)[number];

export const roles = ["operator", "admin", "member"] as const;
export const roleSchema = z.enum(roles);
export type Role = (typeof roles)[number];

export interface Caller {
  readonly kind: "operator" | "key" | "user" | "subscription" | "hook";
  /**
   * Stable id used in idempotency keys, kept turns and audit: key id, `user:{issuer}:{subject}`, `operator`,
   * id of the subscription or hook.
   */
  readonly id: string;
  readonly role: Role;
  readonly scopes: readonly Scope[];
  /** Patterns of tool names or URIs (`*` matches any run of characters) bound to the key; null: all enabled tools. */
  readonly tools: readonly string[] | null;
  /** Patterns that this request narrows itself to, on top of `tools`; absent: it does not. */
  readonly within?: readonly string[];
  /** The agent that acts for the caller; absent: none does. */
  readonly bound?: Binding;
  /** End user for user-level credentials; from the JWT subject or, for keys, the key's own user. */
  readonly userId?: string;
  readonly businessUnit?: string;
}

/** What an agent may do of what its caller may. It is kept with calls that run later. */
export interface Binding {
  /** Names of the agents, from the one that was asked first to the one that acts. */
  readonly path: readonly string[];
  /** Patterns of its tools. */
  readonly tools: readonly string[];
  /** Names of the knowledge bases that it searches. */
  readonly knowledge: readonly string[];
  /** Levels of agents that may still be called below it. */
  readonly depthLeft: number;
}

/** Has the caller this scope? The operator has them all; of a tenant's keys and users not even an admin's role gives any. */
export function hasScope(caller: Caller, scope: Scope): boolean {
  return caller.role === "operator" || caller.scopes.includes(scope);
}

/** Is the tool bound to the key, or to the agent that acts, by its very name? */
export function isBoundByName({ tools, bound }: Caller, name: string): boolean {
  return tools?.includes(name) === true || bound?.tools.includes(name) === true;
}

/** A tool name, or a tool URI without options; `*` stands for any run of characters. */
export const toolPatternSchema = z
  .string()
  .max(512)
  .regex(
    /^(?:[a-zA-Z0-9_*-]{1,64}|[a-z]{1,16}:\/\/[^\s?#]+)$/,
    "must be a tool name or a tool URI without options, in which '*' stands for any characters",
  );

/** Facts about a tool that the decision needs. */
export interface GuardedTool {
  readonly name: string;
  /** Patterns with `://` are about it. */
  readonly uri?: string;
  readonly enabled: boolean;
  /** Roles that may use it; empty: every role. */
  readonly roles: readonly Role[];
  /** Belongs to whoever has this scope, whatever tools they may use. */
  readonly scope?: Scope;
}

/** One decision for listing and running. */
export function mayUseTool(caller: Caller, tool: GuardedTool): boolean {
  if (!tool.enabled) return false;
  // An agent may do what is bound to it, and nothing that is the caller's alone.
  if (tool.scope !== undefined) return caller.bound === undefined && hasScope(caller, tool.scope);
  if (tool.roles.length > 0 && !tool.roles.includes(caller.role) && caller.role !== "operator") return false;
  return names(caller.tools ?? undefined, tool) && names(caller.within, tool) && isBound(caller.bound, tool);
}

function isBound(bound: Binding | undefined, tool: GuardedTool): boolean {
  if (bound === undefined) return true;
  // "All tools" are not all agents: who may call an agent says so.
  const isAgent = tool.uri?.startsWith("agent://") === true;
  return names(isAgent ? bound.tools.filter((pattern) => !/^[^:]*\*/.test(pattern)) : bound.tools, tool);
}

function names(patterns: readonly string[] | undefined, tool: GuardedTool): boolean {
  return patterns === undefined || patterns.some((pattern) => namesTool(pattern, tool));
}

export function namesTool(pattern: string, { name, uri }: Pick<GuardedTool, "name" | "uri">): boolean {
  if (!pattern.includes("://")) return matchesPattern(pattern, name);
  return uri !== undefined && matchesPattern(addressed(pattern), uri);
}

const mostAddressed = 2_000;
const addressedPatterns = new Map<string, string>();

/** Patterns are held against every tool, and most are asked for again and again. */
function addressed(pattern: string): string {
  const known = addressedPatterns.get(pattern);
  if (known !== undefined) return known;
  if (addressedPatterns.size >= mostAddressed) addressedPatterns.clear();
  const made = encodeAddress(pattern);
  addressedPatterns.set(pattern, made);
  return made;
}

/** `*` stands for any run of characters. */
export function matchesPattern(pattern: string, name: string): boolean {
  if (!pattern.includes("*")) return pattern === name;
  const parts = pattern.split("*");
  const first = parts[0] ?? "";
  const last = parts.at(-1) ?? "";
  if (!name.startsWith(first) || name.length < first.length + last.length) return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return name.length - last.length >= at && name.endsWith(last);
}
